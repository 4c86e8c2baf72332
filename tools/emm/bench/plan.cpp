#include "bench/plan.h"

#include "usage.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace emm::tool {
namespace {

const CandidateKind &kind_named(const std::string &name) {
    const auto &kinds = candidate_kinds();
    return *std::find_if(kinds.begin(), kinds.end(),
                         [&](const CandidateKind &kind) { return name == kind.name; });
}

bool runs(const CandidateKind &kind, const std::string &name) {
    return std::any_of(kind.cases.begin(), kind.cases.end(),
                       [&](const char *known) { return name == known; });
}

std::vector<std::string> wanted_cases(const BenchOptions &options) {
    std::vector<std::string> names;
    for (const BenchCase &known : bench_cases()) {
        const auto &asked = options.cases;
        if (asked.empty() || std::find(asked.begin(), asked.end(), known.name) != asked.end()) {
            names.emplace_back(known.name);
        }
    }
    return names;
}

// A candidate that runs none of the cases is not started.
std::vector<PlannedCandidate> planned_candidates(const BenchOptions &options,
                                                 const std::vector<std::string> &names) {
    std::vector<PlannedCandidate> candidates;
    for (const CandidateKind &kind : candidate_kinds()) {
        const bool needed = std::any_of(names.begin(), names.end(),
                                        [&](const std::string &name) { return runs(kind, name); });
        if (needed && std::strcmp(kind.name, plugin_kind) == 0) {
            for (const std::string &plugin : options.plugins) {
                candidates.push_back({kind.name, plugin});
            }
            if (options.plugins.empty()) {
                candidates.push_back({kind.name, ""});
            }
        } else if (needed) {
            candidates.push_back({kind.name, ""});
        }
    }
    return candidates;
}

std::vector<uint64_t> sizes_of(const BenchCase &known, const BenchOptions &options) {
    return known.size == 0 || options.sizes.empty() ? std::vector<uint64_t>{known.size}
                                                    : options.sizes;
}

uint32_t threads_of(const std::string &name, uint32_t threads) {
    return name == "cross" ? std::max(threads, 2u) : threads;
}

// Cases with the same answer are compared with each other and take turns. Other cases would disturb
// each other: a plugin with holes is no longer the plugin that `pair` measures.
std::string comparison_of(const std::string &name) {
    if (name == "vtable" || name == "clock" || name == "logged" || name == "tracked" ||
        name == "tracked_stack") {
        return "bare";
    }
    return name == "handle" || name.rfind("pair", 0) == 0 ? "pair" : name;
}

// Groups of measurements that take turns, in the order of their first members.
class Groups {
public:
    void add(const PlannedMeasurement &planned) {
        const auto key =
            std::make_tuple(comparison_of(planned.measurement.name), planned.measurement.threads,
                            planned.measurement.size,
                            is_measured_alone(planned.measurement.name) ? planned.candidate : 0);
        const auto [found, is_new] = numbers_.try_emplace(key, groups_.size());
        if (is_new) {
            groups_.emplace_back();
        }
        groups_[found->second].push_back(planned);
    }
    std::vector<std::vector<PlannedMeasurement>> take() { return std::move(groups_); }

private:
    std::map<std::tuple<std::string, uint32_t, size_t, size_t>, size_t> numbers_;
    std::vector<std::vector<PlannedMeasurement>> groups_;
};

} // namespace

Plan make_plan(const BenchOptions &options) {
    const std::vector<std::string> names = wanted_cases(options);
    Plan plan;
    Groups groups;
    plan.candidates = planned_candidates(options, names);
    for (const uint32_t threads : options.threads) {
        for (const std::string &name : names) {
            for (const uint64_t size : sizes_of(find_case(name), options)) {
                for (size_t i = 0; i < plan.candidates.size(); i++) {
                    if (runs(kind_named(plan.candidates[i].kind), name)) {
                        groups.add({i, {name, threads_of(name, threads), size}});
                    }
                }
            }
        }
    }
    plan.groups = groups.take();
    return plan;
}

const std::vector<BenchCase> &bench_cases() {
    static const std::vector<BenchCase> all = {
        {"bare", 256, "two indirect calls to an empty plugin: the floor under vtable"},
        {"vtable", 256, "the same empty plugin through emm: what emm itself costs"},
        {"clock", 256,
         "four readings of the event log's clock: the floor between vtable and logged"},
        {"logged", 256, "vtable with EMM_EVENT_LOG set: two events a pair"},
        {"tracked", 256, "vtable with EMM_TRACK=module: a record is made and dropped"},
        {"tracked_stack", 256, "the same with EMM_TRACK=stack"},
        {"pair", 256, "allocate and free on a registered stream, one for each thread"},
        {"pair_null", 256, "the same on the legacy default stream"},
        {"pair_raw", 256, "the same on a stream that was not registered"},
        {"pair_unordered", 256, "the same with EMM_STREAM_UNORDERED"},
        {"pair_busy", 4096, "up to 10,000 of pair_unordered as one, beside work that does not end"},
        {"pair_current", 256, "pair, asking for the current context before each call"},
        {"ask_raw", 0, "twice cuStreamIsCapturing and cuStreamGetId: what is asked in pair_raw"},
        {"ask_current", 0, "twice cuCtxGetCurrent and cuCtxGetId: what is asked in pair_current"},
        {"handle", 256, "pair, with a handle made and released (emm_memory)"},
        {"mixed", 0, "replace a random block of 10,000; sizes 256 B to 4 KiB"},
        {"holes", 256, "a pair while 65,536 blocks of up to 8 KiB are free between live ones"},
        {"large", 0, "replace a random block of 4,096; sizes 1 to 64 MiB"},
        {"idle", size_t(4) << 20,
         "allocate on one of 8 streams, free on the next, beside 512 that were used once"},
        {"host", 4096, "allocate and free pinned host memory"},
        {"cross", 256, "allocate here, free on another thread (at least 2 threads)"},
        {"counter", 0, "count in private memory: how far this machine's threads scale at all"}};
    return all;
}

const BenchCase &find_case(const std::string &name) {
    std::vector<std::string> names;
    for (const BenchCase &known : bench_cases()) {
        if (name == known.name) {
            return known;
        }
        names.emplace_back(known.name);
    }
    throw none_of("bench: --case", names, name);
}

bool is_measured_alone(const std::string &name) {
    return name == "large";
}

bool counts_driver_calls(const std::string &name) {
    return name == "pair_unordered" || name == "pair_busy" || name == "idle";
}

} // namespace emm::tool
