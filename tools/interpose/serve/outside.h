// emm pause and emm resume: the program's calls are held (hold.h), the device's work is waited for,
// and then the memory goes back to the driver. While anything is paused, all calls of the entries
// in held.txt are held. Any thread may call; the calls take turns.
#pragma once

#include "../served.h"
#include "allocations.h"
#include "contexts.h"

#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace emm::run {

class Outside {
public:
    // `hold` NULL: the program was not started with --pausable.
    explicit Outside(const HoldCalls *hold) : hold_(hold) {}

    const HoldCalls *hold() const { return hold_; }

    // Whether this thread works for emm pause or emm resume. It must not wait for the program,
    // whose calls are held.
    static bool is_own_thread();

    // The pool must not be paused while the program has this memory. `why`: a text that stays
    // valid.
    void stays(const Allocation &memory, const char *why);

    // `outside` has the request, and gets the answer.
    bool ask(monitor::Outside &outside);

private:
    struct Pool {
        emm_context *manager = nullptr;
        emm_context_info info = {};
    };
    class Own;

    struct Staying {
        Allocation memory;
        const char *why = nullptr;
    };

    std::string reason_against_pause(const Pool &pool);
    std::string pause(const monitor::Outside &outside);
    std::string pause_held(const monitor::Outside &outside);
    static std::vector<Pool> pools_named(const std::string &name, std::string &ret_problem);
    std::string pause_pools(const monitor::Outside &outside,
                            std::vector<emm_context *> &ret_paused);
    std::string undo(const std::vector<emm_context *> &paused, bool keeps, uint64_t lost);
    std::string resume(const monitor::Outside &outside);
    std::string hold_calls(int64_t until);
    void release_if_awake();

    const HoldCalls *const hold_;
    std::mutex mutex_;
    std::set<emm_context *> paused_; // pools, by this
    bool is_held_ = false;
    std::mutex staying_mutex_; // for the calls, which a pause waits for
    std::vector<Staying> staying_;
};

} // namespace emm::run
