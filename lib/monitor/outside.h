// emm pause and emm resume: passed on to what `emm run` has put into the process
// (tools/interpose/serve/outside.h), which holds the program's calls meanwhile.
#pragma once

#include <stdint.h>
#include <string_view>

namespace emm::monitor {

// A pool that was paused or resumed, or memory of another kind.
struct OutsidePool {
    int32_t device;
    uint64_t context;  // its id; 0: of none
    const char *pool;  // its name; "": the context's own
    uint64_t bytes;    // that went back to the driver, or came from it
    const char *stays; // what stays of it, and why; "": nothing
};

struct Outside {
    uint32_t flags;   // of emm_context_pause; 0: resume
    int64_t timeout;  // nanoseconds that work on the device may take to end
    const char *pool; // of that name alone; "": of any
    void (*tell)(void *state, const OutsidePool &pool);
    void *state;
    void (*holds)(); // to be called once the program's calls are held, before anything is paused
    // The answer: whether the program's calls are held from now on, and a sentence if it failed.
    bool is_held;
    char problem[1000];
};

// The interposer exports such a function as `outside_name`. If it fails, it answers false, and
// `problem` says why and what has changed.
using AskOutside = bool (*)(Outside *outside);
inline constexpr const char outside_name[] = "emm_run_outside";

// Answers a request to pause (`is_pause`) or resume on a copy of `socket`, once that is done, by a
// thread of its own.
void answer_outside(int socket, bool is_pause, std::string_view rest);

// Whether the program's calls are held.
bool is_held() noexcept;

// The process ends: waits for what goes on, nanoseconds at most.
void end_outside(int64_t timeout) noexcept;

} // namespace emm::monitor
