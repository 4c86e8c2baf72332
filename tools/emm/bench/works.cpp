#include "bench/works.h"

#include <chrono>
#include <thread>

namespace emm::tool {

IdleWork::IdleWork(emm_context *context, size_t size) : context_(context), size_(size) {
    EMM_REQUIRE_CUDA(cuEventCreate, &event_, CU_EVENT_DISABLE_TIMING);
    for (size_t i = 0; i < idle_streams; i++) {
        const PluginMemory memory = memory_on_new_stream();
        for (const size_t used : {size_t(256), size}) {
            memory.release(memory.allocate(used), used);
        }
    }
    for (size_t i = 0; i < working_streams; i++) {
        working_.push_back(memory_on_new_stream());
    }
}

IdleWork::~IdleWork() {
    driver_calls().cuEventDestroy(event_);
}

PluginMemory IdleWork::memory_on_new_stream() {
    streams_.push_back(std::make_unique<Stream>(context_));
    return {context_, streams_.back()->get()};
}

void IdleWork::run(uint64_t pairs) {
    for (; pairs > 0; pairs--) {
        const size_t taking = next_++ % working_streams, giving = next_++ % working_streams;
        const auto block = working_[taking].allocate(size_);
        EMM_REQUIRE_CUDA(cuEventRecord, event_, streams_[idle_streams + taking]->get());
        EMM_REQUIRE_CUDA(cuStreamWaitEvent, streams_[idle_streams + giving]->get(), event_, 0);
        working_[giving].release(block, size_);
    }
}

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
