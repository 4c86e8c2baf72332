#include "bench/works.h"

#include <chrono>
#include <thread>

namespace emm::tool {

void BusyWork::begin() {
    runs_ = over_ = false;
    launcher_ = std::thread([this] { launch(); });
    while (!runs_) {
        std::this_thread::yield();
    }
    require_cuda(launched_, "cuLaunchHostFunc");
}

void BusyWork::launch() {
    CUresult result = driver_calls().cuCtxSetCurrent(context_);
    if (result == CUDA_SUCCESS) {
        result = driver_calls().cuLaunchHostFunc(stream_.get(), &BusyWork::last, this);
    }
    launched_ = result;
    if (result != CUDA_SUCCESS) {
        runs_ = true;
    }
}

void BusyWork::end() {
    over_ = true;
    if (launcher_.joinable()) {
        launcher_.join();
    }
    driver_calls().cuStreamSynchronize(stream_.get());
}

void BusyWork::last(void *argument) {
    using namespace std::chrono_literals;
    auto &self = *static_cast<BusyWork *>(argument);
    self.runs_ = true;
    const auto end = std::chrono::steady_clock::now() + 50ms;
    while (!self.over_ && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(20us);
    }
}

} // namespace emm::tool
