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

// Figures of a device, over all contexts of the process.
struct AccountFigures {
    uint64_t limit_bytes = 0; // 0: none
    uint64_t used_bytes = 0, managers_bytes = 0, program_bytes = 0;
    std::string group; // that shares the limit
};
AccountFigures ask_account(int32_t device);

// The memory of one context. Until `stats` are there, `problem` says why they are not.
struct ContextFigures {
    int32_t device = 0;
    uint64_t id = 0;
    std::string pool; // its name; "" for the CUDA context's own pool
    std::string spec; // of its plugin, as it was chosen, with options and layers
    // Changed since then: "max=16MiB,slack=0"; a key alone means no value.
    std::string changed_options;
    uint8_t uuid[16] = {};
    uint32_t pci[3] = {};     // domain, bus, device
    uint64_t total_bytes = 0; // of the device
    AccountFigures account;
    uint64_t pending_frees = 0, pending_free_bytes = 0;
    std::optional<emm_stats> stats;
    int64_t at = 0; // when the figures were told: CLOCK_MONOTONIC, nanoseconds
    std::string problem;
    std::vector<OldAllocation> oldest; // the oldest first
};

// The figures that need no answer from the plugin. `problem` says that the plugin has not answered
// yet.
ContextFigures identify(const emm_context &context);

// Asks the plugin, which may take a lock of its own, or hang. Meanwhile the context's manager is
// neither made nor given up. If that is happening just now, the context is skipped, without
// waiting.
void ask(emm_context &context, ContextFigures &ret_figures);

// The large allocations that have been live for longest, if the process tracks its allocations.
inline constexpr size_t most_oldest = 5;
std::vector<OldAllocation> oldest_allocations(const emm_context &context);

// The process's answer to a request.
struct Collected {
    std::vector<ContextFigures> contexts;     // the oldest first
    std::string report;                       // if the request asks for it
    std::optional<core::LiveProfile> profile; // if the request asks for it, and it is known by now
    // For a change of an option: why a pool has not changed, or "" if all have. Empty: nothing was
    // changed, or the outcome is not known yet.
    std::optional<std::string> set_problem;
    size_t set_pools = 0;  // number of pools changed
    std::string set_above; // a sentence if a pool has more live than its new value allows
    bool is_held = false;  // `emm run` holds the program's calls (outside.h)
    int64_t stuck = 0;     // nanoseconds since a plugin was asked that has not answered yet
};

// Changes an option in each CUDA context that has the pool. `setting` has the option and the pool's
// name ("": the context's own pool), as for RequestKind::set. Stops at the first refusal.
void change_option(std::string_view setting, Collected &ret_collected);

// Asks every context on a thread of its own, because a plugin may hang permanently. Then the answer
// is everything known by then, now and later. The thread starts with the first question.
class Collector {
public:
    // For one calling thread. Waits for about `timeout` (nanoseconds). `rest`: the request's
    // argument.
    Collected collect(RequestKind kind, int64_t timeout, std::string_view rest = {});

    // Called at the process's end: no plugin is asked any more. Waits for a plugin that is being
    // asked, for at most `timeout`.
    void end(int64_t timeout) noexcept;

private:
    bool begin(RequestKind kind, std::string_view rest);
    void run() noexcept;
    void work(RequestKind kind, const std::string &rest);
    bool has_ended();
    void work_on(emm_context &context);
    bool wait(std::unique_lock<std::mutex> &lock, int64_t until);

    std::mutex mutex_; // guards the members below; not held while a plugin is asked
    std::condition_variable asked_, answered_;
    bool has_thread_ = false, is_busy_ = false, has_ended_ = false;
    RequestKind kind_ = RequestKind::figures;
    std::string rest_;
    int64_t since_ = 0;
    Collected found_;
};

} // namespace emm::monitor
