#include "bench/cases.h"

#include "usage.h"

namespace emm::tool {

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
        {"pair_busy", 4096, "the same, 10,000 as one, while another stream's work does not end"},
        {"pair_current", 256, "pair, asking for the current context before each call"},
        {"ask_raw", 0, "twice cuStreamIsCapturing and cuStreamGetId: what is asked in pair_raw"},
        {"ask_current", 0, "twice cuCtxGetCurrent and cuCtxGetId: what is asked in pair_current"},
        {"handle", 256, "pair, with a handle made and released (emm_memory)"},
        {"mixed", 0, "replace a random block of 10,000; sizes 256 B to 4 KiB"},
        {"holes", 256, "a pair while 65,536 blocks of up to 8 KiB are free between live ones"},
        {"large", 0, "replace a random block of 4,096; sizes 1 to 64 MiB"},
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
    return name == "pair_unordered" || name == "pair_busy";
}

} // namespace emm::tool
