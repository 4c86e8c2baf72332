// emm pause and emm resume are passed on to the library that `emm run` has put into the process
// (tools/interpose/serve/outside.h). It holds the program's calls meanwhile.
#pragma once

#include <stdint.h>
#include <string_view>

namespace emm::monitor {

// A pool that was paused or resumed, or memory of another kind.
struct OutsidePool {
    int32_t device;
    uint64_t context;  // its id; 0: of no context
    const char *pool;  // its name; "": the context's own
    uint64_t bytes;    // bytes that went back to the driver, or came from it
    const char *stays; // the part that stays, and why; "": nothing stays
};

struct Outside {
    bool is_pause;    // or a resume
    uint32_t flags;   // of emm_context_pause or emm_context_resume
    int64_t timeout;  // nanoseconds: the most that work on the device may take to end
    const char *pool; // pools of that name only; "": all
    void (*tell)(void *state, const OutsidePool &pool);
    void *state;
    void (*holds)(); // called once the program's calls are held, before anything is paused
    // The answer: whether the program's calls are held from now on, and a sentence if the request
    // failed.
    bool is_held;
    char problem[1000];
};

// The interposer exports such a function as `outside_name`. If the function fails, it returns
// false, and `problem` says why and what has changed.
using AskOutside = bool (*)(Outside *outside);
inline constexpr const char outside_name[] = "emm_run_outside";

// Carries out a request to pause (`is_pause`) or resume on a thread of its own, then answers on a
// copy of `socket`.
void answer_outside(int socket, bool is_pause, std::string_view rest);

// Finds that library. Called also when the first context is served: at a pause or a resume, a
// thread of the program may have the dynamic linker's lock, because a library that it loads calls
// CUDA.
void find_library() noexcept;

// Whether the program's calls are held.
bool is_held() noexcept;

// Called at the process's end: waits for a request under way, at most `timeout` nanoseconds.
void end_outside(int64_t timeout) noexcept;

} // namespace emm::monitor
