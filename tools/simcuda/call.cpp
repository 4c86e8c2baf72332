#include "call.h"

#include <emm/cuda.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace simcuda {

constinit thread_local Thread this_thread = {};

namespace {

std::atomic<uint64_t> counts[row_count];
std::atomic<uint32_t> threads_seen;

// Queries still work in a context that an error has broken.
bool survives_errors(std::string_view name) {
    return name.starts_with("cuDevice") || name.starts_with("cuCtxGet") ||
           name == "cuCtxPushCurrent" || name == "cuCtxPopCurrent" || name == "cuCtxSetCurrent" ||
           name == "cuCtxDestroy" || name == "cuCtxDetach" || name == "cuStreamGetId" ||
           name == "cuStreamGetCtx";
}

void wait_as_told(const char *name) {
    const auto &latency = sim().options.latency;
    if (latency.empty()) {
        return;
    }
    if (const auto found = latency.find(name); found != latency.end()) {
        std::this_thread::sleep_for(std::chrono::microseconds(found->second));
    }
}

CUresult inject(const char *name) {
    Simulator &simulator = sim();
    if (!simulator.faulty.load(std::memory_order_relaxed)) {
        return CUDA_SUCCESS;
    }
    const std::lock_guard lock(simulator.mutex);
    const CUresult result = this_thread.spared ? CUDA_SUCCESS : simulator.faults.next(name);
    if (result != CUDA_SUCCESS) {
        if (emm::cuda::is_sticky(result)) {
            simulator.sticky = result;
        }
        return result;
    }
    return survives_errors(name) ? CUDA_SUCCESS : simulator.sticky;
}

} // namespace

Call::Call(Row row, bool per_thread_stream)
    : outer_call_(this_thread.call), outer_variant_(this_thread.per_thread_stream),
      refusal_(check(row)) {
    count_call(row);
    this_thread.call = name_of(row);
    this_thread.per_thread_stream = per_thread_stream;
    if (refusal_ == CUDA_SUCCESS) {
        wait_as_told(this_thread.call);
        refusal_ = inject(this_thread.call);
    }
}

Call::~Call() {
    this_thread.call = outer_call_;
    this_thread.per_thread_stream = outer_variant_;
}

CUresult Call::check(Row) const {
    if (this_thread.number == 0) {
        this_thread.number = ++threads_seen;
    }
    const Simulator &simulator = sim();
    switch (simulator.stage.load(std::memory_order_acquire)) {
    case Stage::ready:
        break;
    case Stage::gone:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return this_thread.in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

void count_call(Row row) {
    counts[row].fetch_add(1, std::memory_order_relaxed);
}

uint64_t calls_of(std::string_view name) {
    uint64_t sum = 0;
    for (int row = 0; row < row_count; ++row) {
        if (name == name_of(static_cast<Row>(row))) {
            sum += counts[row].load(std::memory_order_relaxed);
        }
    }
    return sum;
}

uint64_t calls_of_all() {
    uint64_t sum = 0;
    for (const auto &count : counts) {
        sum += count.load(std::memory_order_relaxed);
    }
    return sum;
}

CUresult misuse(const char *format, ...) {
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "simcuda: misuse: %s: %s\n", this_thread.call ? this_thread.call : "?", text);
    if (sim().options.abort_on_misuse) {
        abort();
    }
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace simcuda
