// A step is chosen by chance; each ends with memory in a state that the pattern checks can prove.
// What the steps rely on is exactly what emm/plugin.h says about streams.
#include "worker.h"

#include <utility>

namespace {

constexpr size_t most_live = 300; // blocks of one thread

} // namespace

Worker::Worker(Traffic &traffic, unsigned number)
    : traffic_(traffic), cuda_(traffic.cuda), number_(number), random_(number + 1),
      streams_(traffic.gpus.size()) {
    for (size_t gpu = 0; gpu < streams_.size(); gpu++) {
        use(gpu);
        check(cuda_.cuStreamCreate(&streams_[gpu].main, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(cuda_.cuStreamCreate(&streams_[gpu].side, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(emm_stream_register(traffic_.gpus[gpu].emm, streams_[gpu].main), "registering");
    }
}

void Worker::run() {
    uint64_t steps = 0;
    for (; !traffic_.stop.load(std::memory_order_relaxed); steps++) {
        step();
    }
    traffic_.steps += steps;
    finish();
}

void Worker::step() {
    const size_t dice = random(100);
    if (live_.empty() || (dice < 45 && live_.size() < most_live)) {
        allocate();
    } else if (dice < 70) {
        free_in_order();
    } else if (dice < 80) {
        free_unordered();
    } else if (dice < 85) {
        free_after_side_use();
    } else if (dice < 90) {
        send();
    } else if (dice < 95) {
        receive();
    } else if (dice < 97) {
        allocate_pinned();
    } else if (dice < 98) {
        section();
    } else if (dice < 99) {
        replace_stream();
    } else {
        housekeeping();
    }
}

void Worker::allocate() {
    Block block;
    block.gpu = random(streams_.size());
    block.size = random_size();
    block.pattern = ++traffic_.last_pattern;
    use(block.gpu);
    const CUstream stream = streams_[block.gpu].main;
    check(emm_memalloc(traffic_.gpus[block.gpu].emm, block.size,
                       random(8) == 0 ? EMM_STREAM_UNORDERED : stream, &block.ptr),
          "emm_memalloc");
    block.fill(cuda_, stream);
    live_.push_back(block);
}

void Worker::free_in_order() {
    const Block block = take_random();
    block.verify(cuda_, streams_[block.gpu].main);
    block.fill(cuda_, streams_[block.gpu].main); // still busy when it is freed
    free(block, streams_[block.gpu].main);
}

// The device may be at work on it, on two streams, and nobody is told which.
void Worker::free_unordered() {
    const Block block = take_random();
    const auto &[main, side] = streams_[block.gpu];
    block.verify(cuda_, main);
    block.fill(cuda_, random(2) ? main : side);
    free(block, EMM_STREAM_UNORDERED);
}

void Worker::free_after_side_use() {
    const Block block = take_random();
    const auto &[main, side] = streams_[block.gpu];
    block.verify(cuda_, main);
    const emm_status status =
        emm_record_use(traffic_.gpus[block.gpu].emm, block.ptr, block.size, side);
    block.fill(cuda_, side);
    if (status == EMM_E_NOT_SUPPORTED) {
        check(cuda_.cuStreamSynchronize(side), "cuStreamSynchronize");
    } else {
        check(status, "emm_record_use");
    }
    free(block, main);
}

void Worker::send() {
    const Block block = take_random();
    CUevent event = nullptr;
    check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuda_.cuEventRecord(event, streams_[block.gpu].main), "cuEventRecord");
    traffic_.mailbox.put({block, event});
}

void Worker::receive() {
    const auto parcel = traffic_.mailbox.take();
    if (!parcel) {
        return;
    }
    use(parcel->block.gpu);
    const CUstream stream = streams_[parcel->block.gpu].main;
    check(cuda_.cuStreamWaitEvent(stream, parcel->event, 0), "cuStreamWaitEvent");
    check(cuda_.cuEventDestroy(parcel->event), "cuEventDestroy");
    parcel->block.verify(cuda_, stream);
    free(parcel->block, stream);
}

void Worker::allocate_pinned() {
    const size_t gpu = random(streams_.size()), size = 64 + random(1 << 16);
    emm_context *context = traffic_.gpus[gpu].emm;
    void *host = nullptr;
    use(gpu);
    check(emm_memhostalloc(context, size, 0, &host, nullptr), "emm_memhostalloc");
    static_cast<char *>(host)[0] = static_cast<char *>(host)[size - 1] = 'x';
    check(emm_memhostfree(context, host, size, 0, EMM_STREAM_UNORDERED), "emm_memhostfree");
}

void Worker::section() {
    emm_context *context = traffic_.gpus[random(streams_.size())].emm;
    check(emm_defer_cleanup_begin(context), "emm_defer_cleanup_begin");
    for (int i = 0; i < 5 && !live_.empty(); i++) {
        free_in_order();
    }
    check(emm_defer_cleanup_end(context), "emm_defer_cleanup_end");
}

// The handle may come back at once, for this thread or for another.
void Worker::replace_stream() {
    const size_t gpu = random(streams_.size());
    CUstream &stream = streams_[gpu].main;
    use(gpu);
    check(cuda_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    check(emm_stream_retire(traffic_.gpus[gpu].emm, stream), "emm_stream_retire");
    check(cuda_.cuStreamDestroy(stream), "cuStreamDestroy");
    check(cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(emm_stream_register(traffic_.gpus[gpu].emm, stream), "emm_stream_register");
}

void Worker::housekeeping() {
    const size_t gpu = random(streams_.size());
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    use(gpu);
    check(emm_get_stats(traffic_.gpus[gpu].emm, &stats), "emm_get_stats");
    if (stats.frees > stats.allocations) {
        throw std::runtime_error("more frees than allocations were counted");
    }
    if (number_ == 0) {
        check(emm_trim(traffic_.gpus[gpu].emm, random(64) << 20, nullptr), "emm_trim");
    }
}

void Worker::finish() {
    while (!live_.empty()) {
        free_in_order();
    }
    for (size_t gpu = 0; gpu < streams_.size(); gpu++) {
        use(gpu);
        check(cuda_.cuCtxSynchronize(), "cuCtxSynchronize");
        check(emm_stream_retire(traffic_.gpus[gpu].emm, streams_[gpu].main), "emm_stream_retire");
        check(cuda_.cuStreamDestroy(streams_[gpu].main), "cuStreamDestroy");
        check(cuda_.cuStreamDestroy(streams_[gpu].side), "cuStreamDestroy");
    }
}

void Worker::use(size_t gpu) {
    check(cuda_.cuCtxSetCurrent(traffic_.gpus[gpu].cuda), "cuCtxSetCurrent");
}

Block Worker::take_random() {
    std::swap(live_[random(live_.size())], live_.back());
    const Block block = live_.back();
    live_.pop_back();
    use(block.gpu);
    return block;
}

// As many of 16 bytes as of 16 MiB: each power of two is equally likely.
size_t Worker::random_size() {
    const size_t power = size_t(16) << random(21);
    return (power + random(power)) / 4 * 4;
}

void Worker::free(const Block &block, emm_stream stream) {
    check(emm_memfree(traffic_.gpus[block.gpu].emm, block.ptr, random(4) ? block.size : 0, stream),
          "emm_memfree");
}
