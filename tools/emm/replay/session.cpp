#include "replay/session.h"

#include "problem.h"

namespace emm::tool {

Session::Session(const Trace &trace) : blocks_(new Block[trace.blocks]) {
    require(emm_context_for_device(0, &context_), "create");
    auto info = sized<emm_context_info>();
    require(emm_context_get_info(context_, &info), "run");
    cuda_context_ = info.cuda_context;
    enter();
    for (uint32_t i = 0; i < trace.streams; i++) {
        CUstream stream = nullptr;
        EMM_REQUIRE_CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        streams_.push_back(stream);
        require(emm_stream_register(context_, stream), "run");
    }
    for (const Event &event : trace.events) {
        if (event.op == Op::alloc) {
            Block &allocated = blocks_[event.block];
            allocated.size = event.size;
            allocated.number = event.block;
            allocated.stream = event.stream;
        }
    }
}

void Session::enter() const {
    EMM_REQUIRE_CUDA(cuCtxSetCurrent, cuda_context_);
}

void Session::synchronize() const {
    for (CUstream stream : streams_) {
        EMM_REQUIRE_CUDA(cuStreamSynchronize, stream);
    }
}

void Session::close() {
    for (CUstream stream : streams_) {
        require(emm_stream_retire(context_, stream), "run");
        EMM_REQUIRE_CUDA(cuStreamDestroy, stream);
    }
    streams_.clear();
    require(emm_context_retire(context_), "run");
}

CallCounts count_driver_calls() {
    CallCounts counts;
    const auto note = [](const char *name, uint64_t calls, void *user_data) {
        static_cast<CallCounts *>(user_data)->emplace(name, calls);
    };
    require(emm_foreach_driver_call(note, &counts), "run");
    return counts;
}

uint64_t total(const CallCounts &counts) {
    uint64_t sum = 0;
    for (const auto &[name, calls] : counts) {
        sum += calls;
    }
    return sum;
}

} // namespace emm::tool
