#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// `emm top`: the memory of this user's processes that use emm.
namespace emm::tool::top {

// A large allocation that has been live for long, of a process that tracks its allocations.
struct OldAllocation {
    uint64_t size = 0;
    int64_t age = 0;    // nanoseconds
    std::string module; // the caller's
    std::string caller; // the line of Python; empty: not known
};

// The account of a device, over all contexts of the process.
struct Account {
    uint64_t limit_bytes = 0; // 0: no limit
    uint64_t used_bytes = 0, managers_bytes = 0, program_bytes = 0;
    std::string group; // that shares the limit; "": none

    uint64_t free_bytes() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

struct Context {
    int64_t device = 0; // ordinal, as the process counts
    uint64_t id = 0;
    std::string pool;            // the name of a named pool
    std::string spec;            // of its plugin, as chosen, with options; empty: not told
    std::string changed_options; // since then, as emm set has them: max=16MiB
    std::string uuid, pci;       // of the device
    uint64_t total_bytes = 0;    // of the device
    Account account;
    uint64_t pending_frees = 0, pending_free_bytes = 0;
    std::optional<emm_stats> stats;
    int64_t at = 0;                         // when they were told, by the process's clock; ns
    std::string problem;                    // why there are no stats
    std::optional<double> allocations_rate; // a second; known from the second answer on
    std::vector<OldAllocation> oldest;
};

// The bytes of a pool that emm pause has given back, or emm resume brought back.
struct PausedPool {
    int64_t device = 0;
    uint64_t context = 0; // its id; 0: no context
    std::string pool;     // its name; empty: the context's own
    uint64_t bytes = 0;
    std::string stays; // the part that stays, and why; empty: none
};

// The live memory of a process that tracks its allocations, by caller.
struct LiveProfile {
    struct Frame {
        std::string file, function;
        uint64_t line = 0; // of Python; 0: compiled
    };
    struct Caller {
        uint64_t device = 0, memory = 0; // memory: EMM_EVENT_DEVICE and so on
        uint64_t bytes = 0, count = 0;
        std::vector<size_t> frames; // the innermost first, by their place below
        std::string tag;            // "serve/decode"; "": none, or an older emm
    };
    bool is_tracked = false;
    uint64_t sample = 1, lost = 0;
    std::vector<Frame> frames;
    std::vector<Caller> callers;
    uint64_t other_bytes = 0, other_count = 0; // of callers beyond the limit
};

struct Process {
    std::string name; // of its socket: unique among processes
    int64_t pid = 0;
    std::string program, command;
    std::string emm, plugin, plugin_version; // empty: not told
    std::string problem;                     // empty: it has answered
    int64_t stuck = 0;                       // how long its plugin has not answered; ns
    std::vector<Context> contexts;
    uint64_t contexts_left_out = 0;
    std::string report;                     // if asked for
    std::optional<std::string> set_problem; // of an option that was set; none: not told
    uint64_t set_pools = 0;                 // in which the option has changed
    std::string set_above;                  // a sentence if more is live than the new value allows
    std::optional<std::string> limit_problem; // of a limit that was set; none: not told
    std::string limit_above;                  // a sentence if more is in use than the new limit
    bool is_held = false;                     // its calls, by emm pause
    std::optional<std::string> pause_problem; // of a pause or resume; none: not told
    int64_t pause_nanoseconds = 0;
    uint64_t pause_bytes = 0; // of all pools
    std::vector<PausedPool> pause_pools;
    uint64_t pause_pools_left_out = 0;
    std::optional<LiveProfile> profile; // if asked for
};

// Figures from /proc for a process: its name, "" if it does not exist; whether this user has
// started it; whether it is stopped.
std::string program_of(int64_t pid);
bool is_of_this_user(int64_t pid);
bool is_stopped(int64_t pid);

// A name under which a process can be asked. Any process of any user can bind one.
struct Name {
    std::string text;        // without the zero byte in front
    int64_t claimed_pid = 0; // as the process sees itself, if the name is honest
};

// The names under which processes listen, in a text like that of /proc/net/unix, each once.
std::vector<Name> names_in(std::string_view table);

// Sets the rates of `ret_now` from the former figures of the same contexts. A new context, or one
// whose count has gone back because of a reset, has no rates.
void find_rates(const std::vector<Process> &before, std::vector<Process> &ret_now);

// Takes over the answer of a process. The process may be any program of this user, so its answer is
// made harmless; a message that is no answer becomes ret_process.problem.
void read_answer(std::string_view message, Process &ret_process);

} // namespace emm::tool::top
