// Chance chooses a step, and the steps rely on exactly the rules of emm/plugin.h about streams.
// Unless blocks are read back, no step waits for the device, except to drain a queue that gets too
// long: memory that is handed out early is then very likely still in use.
#include "worker.h"

#include <algorithm>

namespace {

constexpr uint64_t most_queued = 4096; // steps between waits
const CUstream per_thread = reinterpret_cast<CUstream>(uintptr_t(2));

} // namespace

Worker::Worker(Traffic &traffic, size_t seed)
    : traffic_(traffic), cuda_(traffic.cuda), chance_(seed), places_(traffic.contexts.size()) {
    for (size_t context = 0; context < places_.size(); context++) {
        enter(context);
        for (Stream &stream : mine_->streams) {
            make_stream(stream);
        }
    }
}

void Worker::run(size_t steps) {
    for (size_t done = 0; done < steps && !traffic_.stop; done++) {
        if (places_.size() > 1) {
            enter(below(places_.size()));
        }
        step();
        if ((done + 1) % most_queued == 0) {
            check(cuda_.cuStreamSynchronize(own_stream().handle), "cuStreamSynchronize");
        }
    }
}

void Worker::step() {
    static constexpr struct {
        size_t below;
        void (Worker::*step)();
    } choices[] = {
        {470, &Worker::allocate},
        {670, &Worker::release},
        {750, &Worker::release_elsewhere},
        {820, &Worker::release_unordered},
        {870, &Worker::release_after_use_elsewhere},
        {880, &Worker::use_elsewhere},
        {915, &Worker::hand_over},
        {950, &Worker::take_over},
        {958, &Worker::capture},
        {966, &Worker::replay},
        {974, &Worker::pin_or_unpin},
        {986, &Worker::section},
        {992, &Worker::replace_stream},
        {998, &Worker::look_at_statistics},
        {1000, &Worker::trim},
    };
    const size_t dice = below(1000);
    const bool is_full = mine_->blocks.size() >= traffic_.settings.live;
    if (mine_->blocks.empty() || (dice < choices[0].below && !is_full)) {
        return allocate();
    }
    for (const auto &choice : choices) {
        if (dice < choice.below && choice.step != &Worker::allocate) {
            return (this->*choice.step)();
        }
    }
}

void Worker::allocate() {
    Block block;
    block.context = context_;
    block.size = chance_.size();
    block.stream = any_stream();
    const bool unordered = below(8) == 0;
    std::shared_lock lock(traffic_.unordered_calls, std::defer_lock);
    if (unordered) {
        lock.lock();
    }
    if (!given(emm_memalloc(emm(), block.size, unordered ? EMM_STREAM_UNORDERED : block.stream,
                            &block.ptr),
               "emm_memalloc")) {
        return;
    }
    use(block, block.stream);
    mine_->blocks.push_back(block);
}

// False: memory is short, as it may be here.
bool Worker::given(emm_status status, const char *what) {
    if (status == EMM_E_OUT_OF_MEMORY && traffic_.may_fail(*at_)) {
        traffic_.failed++;
        return false;
    }
    check(status, what);
    return true;
}

// The block's last use is not over at its free.
void Worker::release() {
    Block block = take_random();
    look_into(block);
    use(block, block.stream);
    free(block, block.stream);
}

void Worker::release_elsewhere() {
    Block block = take_random();
    const CUstream stream = any_stream();
    order(block.stream, stream);
    use(block, stream);
    free(block, stream);
}

// The device uses the block, and the plugin is not told on which stream.
void Worker::release_unordered() {
    Block block = take_random();
    const CUstream stream = any_stream();
    order(block.stream, stream);
    use(block, stream);
    const std::shared_lock lock(traffic_.unordered_calls);
    free(block, EMM_STREAM_UNORDERED);
}

// Its own stream is not ordered after the use.
void Worker::release_after_use_elsewhere() {
    Block block = take_random();
    const CUstream home = block.stream, stream = any_stream();
    order(home, stream);
    const bool waits = !record_use(block, stream);
    use(block, stream);
    if (waits) {
        check(cuda_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    free(block, home);
}

// The block comes back to its own stream and is kept.
void Worker::use_elsewhere() {
    Block &block = mine_->blocks[below(mine_->blocks.size())];
    const CUstream home = block.stream, stream = any_stream();
    order(home, stream);
    record_use(block, stream);
    use(block, stream);
    order(stream, home);
    block.stream = home;
}

void Worker::hand_over() {
    HandOver handed;
    handed.block = take_random();
    handed.how = HandOver::Free(below(3));
    if (handed.how == HandOver::Free::on_its_stream) {
        const CUstream stream = any_common();
        order(handed.block.stream, stream);
        use(handed.block, stream);
    } else if (handed.how == HandOver::Free::behind_event) {
        handed.event = record(handed.block.stream);
    }
    traffic_.put(handed);
}

void Worker::take_over() {
    auto handed = traffic_.take();
    if (!handed) {
        return;
    }
    Block &block = handed->block;
    enter(block.context);
    if (handed->how == HandOver::Free::unordered) {
        const std::shared_lock lock(traffic_.unordered_calls);
        return free(block, EMM_STREAM_UNORDERED);
    }
    if (handed->how == HandOver::Free::behind_event) {
        block.stream = any_stream();
        check(cuda_.cuStreamWaitEvent(block.stream, handed->event, 0), "cuStreamWaitEvent");
        check(cuda_.cuEventDestroy(handed->event), "cuEventDestroy");
    }
    look_into(block);
    use(block, block.stream);
    free(block, block.stream);
}

// --- graphs --------------------------------------------------------------------------------------

// Allocates and frees inside, leaves a block to the graph, and gives it one of the thread's. A
// graph that runs once leaves a block to the thread.
void Worker::capture() {
    const Stream stream = own_stream();
    const bool once = below(2) == 0;
    const size_t captures = traffic_.settings.captures;
    if (captures == 0 || (captures == 1 && !stream.registered) || at_->is_full ||
        mine_->graphs.size() == most_graphs) { // a graph takes memory of the device too
        return;
    }
    std::unique_lock lock(traffic_.unordered_calls, std::defer_lock);
    if (stream.registered) {
        check(emm_capture_begin(emm(), stream.handle), "emm_capture_begin");
    } else {
        lock.lock();
    }
    check(cuda_.cuStreamBeginCapture(stream.handle, traffic_.settings.alone() && stream.registered
                                                        ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                        : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    Block block;
    for (int i = 0; i < 3; i++) {
        if (allocate_in_capture(stream.handle, block)) {
            use(block, stream.handle);
            free(block, stream.handle);
        }
    }
    auto &blocks = mine_->blocks;
    const auto own = std::find_if(blocks.begin(), blocks.end(), [&](const Block &candidate) {
        return candidate.stream == stream.handle;
    });
    if (own != blocks.end()) {
        block = taken_from(blocks, size_t(own - blocks.begin()));
        at_->pattern->replace(block.ptr, block.size, block.pattern, block.pattern, stream.handle);
        // The memory is the graph's, whatever else has used it, so no wait is needed yet.
        check(emm_memfree(emm(), block.ptr, 0, stream.handle), "emm_memfree");
    }
    if (once && allocate_in_capture(stream.handle, block)) {
        blocks.push_back(block);
    }
    const CUgraphExec exec = end_capture(stream);
    if (once) {
        check(cuda_.cuGraphLaunch(exec, stream.handle), "cuGraphLaunch");
        check(cuda_.cuGraphExecDestroy(exec), "cuGraphExecDestroy"); // it may be running
    } else {
        mine_->graphs.push_back({exec, stream.handle});
    }
}

bool Worker::allocate_in_capture(CUstream stream, Block &block) {
    block = {};
    block.context = context_;
    block.size = chance_.size();
    if (!given(emm_memalloc(emm(), block.size, stream, &block.ptr), "emm_memalloc")) {
        return false;
    }
    use(block, stream);
    return true;
}

CUgraphExec Worker::end_capture(const Stream &stream) {
    CUgraph graph = nullptr;
    check(cuda_.cuStreamEndCapture(stream.handle, &graph), "cuStreamEndCapture");
    if (stream.registered) {
        check(emm_capture_end(emm(), stream.handle), "emm_capture_end");
    }
    CUgraphExec exec = nullptr;
    check(cuda_.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuda_.cuGraphDestroy(graph), "cuGraphDestroy");
    return exec;
}

void Worker::replay() {
    if (mine_->graphs.empty()) {
        return;
    }
    const size_t number = below(mine_->graphs.size());
    Graph &graph = mine_->graphs[number];
    const CUstream stream = own_stream().handle;
    order(graph.last, stream);
    graph.last = stream;
    check(cuda_.cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    if (below(4) == 0) {
        drop_graph(number);
    }
}

// It may be running.
void Worker::drop_graph(size_t number) {
    check(cuda_.cuGraphExecDestroy(taken_from(mine_->graphs, number).exec), "cuGraphExecDestroy");
}

// --- streams -------------------------------------------------------------------------------------

void Worker::make_stream(Stream &stream) {
    check(cuda_.cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    stream.registered = below(2) == 0;
    if (stream.registered) {
        check(emm_stream_register(emm(), stream.handle), "emm_stream_register");
    }
}

// Its work need not be done.
void Worker::drop_stream(Stream &stream) {
    if (stream.registered) {
        check(emm_stream_retire(emm(), stream.handle), "emm_stream_retire");
    }
    check(cuda_.cuStreamDestroy(stream.handle), "cuStreamDestroy");
}

// The handle may come back at once, for this thread or for another.
void Worker::replace_stream() {
    if (at_->is_full) {
        return; // a new one takes memory
    }
    Stream &stream = own_stream();
    const CUstream heir = any_common();
    order(stream.handle, heir);
    for (Block &block : mine_->blocks) {
        block.stream = block.stream == stream.handle ? heir : block.stream;
    }
    for (Graph &graph : mine_->graphs) {
        graph.last = graph.last == stream.handle ? heir : graph.last;
    }
    drop_stream(stream);
    make_stream(stream);
}

CUevent Worker::record(CUstream stream) {
    CUevent event = nullptr;
    check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuda_.cuEventRecord(event, stream), "cuEventRecord");
    return event;
}

void Worker::order(CUstream before, CUstream after) {
    if (before == after) {
        return;
    }
    const CUevent event = record(before);
    check(cuda_.cuStreamWaitEvent(after, event, 0), "cuStreamWaitEvent");
    check(cuda_.cuEventDestroy(event), "cuEventDestroy");
}

// --- the rest ------------------------------------------------------------------------------------

void Worker::pin_or_unpin() {
    auto &pinned = mine_->pinned;
    if (pinned.size() == most_pinned || (!pinned.empty() && below(2))) {
        return unpin(taken_from(pinned, below(pinned.size())));
    }
    const uint32_t flags[] = {0, EMM_HOST_MAPPED, EMM_HOST_PORTABLE};
    Pinned made;
    made.flags = flags[below(3)];
    const size_t size = chance_.size();
    {
        const std::shared_lock lock(traffic_.unordered_calls);
        const emm_status status = emm_memhostalloc(emm(), size, made.flags, &made.host, nullptr);
        if (status == EMM_E_OUT_OF_MEMORY && at_->is_full) {
            return; // the driver maps it with memory of the device
        }
        check(status, "emm_memhostalloc");
    }
    static_cast<char *>(made.host)[0] = static_cast<char *>(made.host)[size - 1] = 'x';
    pinned.push_back(made);
}

void Worker::unpin(const Pinned &pinned) {
    const bool unordered = below(4) == 0;
    std::shared_lock lock(traffic_.unordered_calls, std::defer_lock);
    if (unordered) {
        lock.lock();
    }
    check(emm_memhostfree(emm(), pinned.host, 0, pinned.flags,
                          unordered ? EMM_STREAM_UNORDERED : any_stream()),
          "emm_memhostfree");
}

void Worker::section() {
    check(emm_defer_cleanup_begin(emm()), "emm_defer_cleanup_begin");
    for (int i = 0; i < 5 && !mine_->blocks.empty(); i++) {
        release();
    }
    check(emm_defer_cleanup_end(emm()), "emm_defer_cleanup_end");
}

void Worker::look_at_statistics() {
    auto stats = sized<emm_stats>();
    check(emm_get_stats(emm(), &stats), "emm_get_stats");
    if (stats.frees > stats.allocations) {
        throw std::runtime_error("more frees than allocations were counted");
    }
}

void Worker::trim() {
    const std::shared_lock lock(traffic_.unordered_calls);
    check(emm_trim(emm(), below(2) ? 0 : below(64) << 20, nullptr), "emm_trim");
}

void Worker::finish() {
    for (size_t context = 0; context < places_.size(); context++) {
        enter(context);
        while (!mine_->blocks.empty()) {
            release();
        }
        while (!mine_->graphs.empty()) {
            drop_graph(0);
        }
        while (!mine_->pinned.empty()) {
            unpin(taken_from(mine_->pinned, 0));
        }
        for (Stream &stream : mine_->streams) { // one by one: other threads may be capturing
            check(cuda_.cuStreamSynchronize(stream.handle), "cuStreamSynchronize");
            drop_stream(stream);
        }
    }
}

void Worker::enter(size_t context) {
    context_ = context;
    at_ = traffic_.contexts[context].get();
    mine_ = &places_[context];
    traffic_.use(*at_);
}

void Worker::use(Block &block, CUstream stream) {
    unsigned next = traffic_.last_pattern.fetch_add(1, std::memory_order_relaxed) + 1;
    next += next == 0;
    at_->pattern->replace(block.ptr, block.size, block.pattern, next, stream);
    block.pattern = next;
    block.stream = stream;
}

void Worker::look_into(const Block &block) {
    if (traffic_.settings.read_back && below(2)) {
        at_->pattern->read_back(block.ptr, block.size, block.pattern, block.stream);
    }
}

// False: the plugin cannot be told, and the caller waits.
bool Worker::record_use(Block &block, CUstream stream) {
    const emm_status status = emm_record_use(emm(), block.ptr, block.size, stream);
    if (status == EMM_E_NOT_SUPPORTED) {
        return false;
    }
    check(status, "emm_record_use");
    block.used_elsewhere = true;
    return true;
}

// Called with the lock if the free has no stream.
void Worker::free(const Block &block, emm_stream stream) {
    std::shared_lock lock(traffic_.unordered_calls, std::defer_lock);
    if (block.used_elsewhere && stream != EMM_STREAM_UNORDERED) {
        lock.lock();
    }
    check(emm_memfree(emm(), block.ptr, below(2) ? block.size : 0, stream), "emm_memfree");
}

Block Worker::take_random() {
    return taken_from(mine_->blocks, below(mine_->blocks.size()));
}

CUstream Worker::any_stream() {
    const size_t number = below(own_streams + 3);
    return number < own_streams        ? mine_->streams[number].handle
           : number == own_streams     ? nullptr
           : number == own_streams + 1 ? per_thread
                                       : any_common();
}
