#pragma once

#include "core/record/context.h"
#include "core/reports/live_profile.h"
#include "monitor/protocol.h"

#include <emm/emm.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emm::monitor {

// A large allocation that has been live for long.
struct OldAllocation {
    uint64_t size = 0;
    int64_t age = 0;    // nanoseconds
    std::string module; // the file that asked for it
    std::string caller; // the line of Python, "" if none is known
};

// Of a device, over all contexts of the process.
struct AccountFigures {
    uint64_t limit_bytes = 0; // 0: none
    uint64_t used_bytes = 0, managers_bytes = 0, program_bytes = 0;
    std::string group; // that shares the limit
};
AccountFigures ask_account(int32_t device);

// What one context holds. Until `stats` are there, `problem` says why they are not.
struct ContextFigures {
    int32_t device = 0;
    uint64_t id = 0;
    std::string pool;            // its name, "" of the CUDA context's own
    std::string spec;            // of its plugin, as it was chosen, with options and layers
    std::string changed_options; // since then: "max=16MiB,slack=0"; a key alone has no value
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {};     // domain, bus, device
    uint64_t total_bytes = 0; // of the device
    AccountFigures account;
    uint64_t pending_frees = 0, pending_free_bytes = 0;
    std::optional<emm_stats> stats;
    int64_t at = 0; // when they were told: CLOCK_MONOTONIC, nanoseconds
    std::string problem;
    std::vector<OldAllocation> oldest; // the oldest first
};

// What is known without asking the plugin. The problem is that it has not answered yet.
ContextFigures identify(const emm_context &context);

// Asks the plugin, which may take a lock of its own, or hang. The context's manager is neither made
// nor given up meanwhile; a context for which that happens just now is not waited for.
void ask(emm_context &context, ContextFigures &ret_figures);

// Of the large ones those that have been live for longest, where the process tracks its
// allocations.
inline constexpr size_t most_oldest = 5;
std::vector<OldAllocation> oldest_allocations(const emm_context &context);

// What the process had to say.
struct Collected {
    std::vector<ContextFigures> contexts;     // the oldest first
    std::string report;                       // if it was wished for
    std::optional<core::LiveProfile> profile; // if it was wished for, and is known by now
    // Of a wish for an option's change: why some pool has not changed, "" if all have; none: the
    // wish came to nothing, or its end is not known yet.
    std::optional<std::string> set_problem;
    size_t set_pools = 0;  // which have changed
    std::string set_above; // a sentence if more is live in one than its new value allows
    bool is_held = false;  // the program's calls, from outside (outside.h)
    int64_t stuck = 0;     // nanoseconds since a plugin was asked, which has not answered
};

// Of a pool's name and an option, both as Wish::set has them: changes it in each CUDA context that
// has the pool, "" its own. Stops at the first that refuses.
void change_option(std::string_view setting, Collected &ret_collected);

// Asks every context on a thread of its own, because a plugin may hang, and may hang for good: then
// what was known by then is the answer, now and later. The thread starts with the first question.
class Collector {
public:
    // For one thread. It waits for about as long as `timeout` (nanoseconds).
    // `rest`: what the wish is about.
    Collected collect(Wish wish, int64_t timeout, std::string_view rest = {});

    // The process ends: no plugin is asked any more. Waits for one that is inside, within limits.
    void end(int64_t timeout) noexcept;

private:
    bool begin(Wish wish, std::string_view rest);
    void run() noexcept;
    void work(Wish wish, const std::string &rest);
    bool has_ended();
    void work_on(emm_context &context);
    bool wait(std::unique_lock<std::mutex> &lock, int64_t until);

    std::mutex mutex_; // over what follows; not held while a plugin is asked
    std::condition_variable asked_, answered_;
    bool has_thread_ = false, is_busy_ = false, has_ended_ = false;
    Wish wish_ = Wish::figures;
    std::string rest_;
    int64_t since_ = 0;
    Collected found_;
};

} // namespace emm::monitor
