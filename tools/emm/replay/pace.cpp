#include "replay/pace.h"

#include "simcuda.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace emm::tool {
namespace {

// Microseconds. A launch itself takes the device about so long; shorter work is not worth a launch.
constexpr double launch_cost = 3, least_work = 10;

// In a longer gap the program waits or reads data, and the device has nothing to do.
constexpr double longest_work = 10000;

constexpr double longest_late_wake = 200;

// Written as PTX, so that no compiler for the GPU is needed; the driver translates it.
constexpr const char source[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry take_time(.param .u64 nanoseconds)
{
    .reg .u64 %length, %begin, %now, %passed;
    .reg .pred %early;
    ld.param.u64 %length, [nanoseconds];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %early, %passed, %length;
    @%early bra again;
    ret;
}
)";

} // namespace

Interval RecordedPace::next(uint32_t gap, bool has_stream) {
    Interval interval;
    interval.pause = gap * factor_;
    owed_ = std::min(owed_ + interval.pause, longest_work);
    if (has_stream && owed_ >= least_work) {
        interval.work = owed_ - launch_cost;
        owed_ = 0;
    }
    return interval;
}

TimedWork::TimedWork() {
    if (is_simulated()) {
        simulated_ = EMM_DRIVER_ENTRY(simcuda_work);
        return;
    }
    CUmodule module = nullptr;
    EMM_REQUIRE_CUDA_ENTRY(cuModuleLoadData, &module, source);
    EMM_REQUIRE_CUDA_ENTRY(cuModuleGetFunction, &kernel_, module, "take_time");
    launch_ = EMM_DRIVER_ENTRY(cuLaunchKernel);
}

void TimedWork::put(CUstream stream, double microseconds) const {
    if (simulated_) {
        const auto whole = static_cast<uint64_t>(std::llround(microseconds));
        return require_cuda(static_cast<CUresult>(simulated_(stream, whole)), "simcuda_work");
    }
    auto nanoseconds = static_cast<uint64_t>(std::llround(microseconds * 1000));
    void *arguments[] = {&nanoseconds};
    require_cuda(launch_(kernel_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
                 "cuLaunchKernel");
}

// A sleeping thread may wake late, so the rest is spent in a loop.
void pause(double microseconds) {
    using Microseconds = std::chrono::duration<double, std::micro>;
    const auto begun = std::chrono::steady_clock::now();
    if (microseconds > longest_late_wake) {
        std::this_thread::sleep_for(Microseconds(microseconds - longest_late_wake));
    }
    while (Microseconds(std::chrono::steady_clock::now() - begun).count() < microseconds) {
    }
}

} // namespace emm::tool
