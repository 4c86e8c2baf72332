// Shared by the tests of a client's functions: the primary context of device 0.
#pragma once

#include "bridge.h"
#include "catch.h"

#include <cuda.h>
#include <stdexcept>
#include <string>

// A driver entry with its CUDA 12.0 signature.
#define CU(name) reinterpret_cast<decltype(&::name)>(emm_driver_entry(#name, 12000))

inline emm_context *gpu() {
    emm_context *context = nullptr;
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    return context;
}

inline void make_current() {
    emm_context_info info = {};
    info.struct_size = sizeof info;
    REQUIRE(emm_context_get_info(gpu(), &info) == EMM_OK);
    REQUIRE(CU(cuCtxSetCurrent)(info.cuda_context) == CUDA_SUCCESS);
}

inline emm_stats stats() {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    REQUIRE(emm_get_stats(gpu(), &stats) == EMM_OK);
    return stats;
}

inline uint64_t late_frees() {
    emm_counters counters = {};
    counters.struct_size = sizeof counters;
    REQUIRE(emm_get_counters(&counters) == EMM_OK);
    return counters.late_frees;
}

// More memory than any device has, also a real one.
constexpr size_t too_much = size_t(1) << 46;

// The text of the exception that a call throws; "": none.
template <class Function> std::string thrown_by(Function function) {
    try {
        function();
        return "";
    } catch (const std::exception &error) {
        return error.what();
    }
}

inline bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}
