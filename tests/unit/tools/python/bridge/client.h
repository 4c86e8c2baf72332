// Shared by the tests of a client's functions: the primary context of device 0.
#pragma once

#include "bridge.h"
#include "catch.h"
#include "unit/answers.h"

#include <cuda.h>
#include <stdexcept>
#include <string>

// A driver entry with its CUDA 12.0 signature.
#define CU(name) reinterpret_cast<decltype(&::name)>(emm_driver_entry(#name, 12000))

inline emm_context *gpu() {
    return context_for_device();
}

inline void make_current() {
    REQUIRE(CU(cuCtxSetCurrent)(info_of(gpu()).cuda_context) == CUDA_SUCCESS);
}

inline emm_stats stats() {
    return stats_of(gpu());
}

inline uint64_t late_frees() {
    return counters().late_frees;
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
