#include "replay/session.h"

#include "problem.h"

namespace emm::tool {

Session::Session(const Trace &trace)
    : unordered_(trace.unordered), blocks_(new Block[trace.blocks]) {
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

emm_stats Session::stats() {
    auto stats = sized<emm_stats>();
    const CallCounts before = count_driver_calls();
    if (emm_get_stats(context_, &stats) < 0) {
        stats = {};
    }
    for (const auto &[name, count] : count_driver_calls()) {
        const auto known = before.find(name);
        calls_for_stats_[name] += count - (known == before.end() ? 0 : known->second);
    }
    return stats;
}

CallCounts Session::driver_calls() const {
    CallCounts counts = count_driver_calls();
    for (const auto &[name, count] : calls_for_stats_) {
        const auto found = counts.find(name);
        found->second -= count;
        if (found->second == 0) {
            counts.erase(found);
        }
    }
    return counts;
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
