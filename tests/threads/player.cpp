// Nothing here waits for the device, except that a queue that gets too long is drained: what is
// handed out early is then very likely still in use.
#include "player.h"

#include <utility>

namespace {

constexpr uint64_t most_queued = 4096; // steps between waits

} // namespace

void Game::put(const Held &block) {
    const std::lock_guard lock(mutex_);
    parcels_.push_back(block);
}

std::optional<Held> Game::take() {
    const std::lock_guard lock(mutex_);
    if (parcels_.empty()) {
        return std::nullopt;
    }
    const Held block = parcels_.front();
    parcels_.pop_front();
    return block;
}

Player::Player(Game &game, unsigned number) : game_(game), cuda_(game.cuda), random_(number) {
    check(cuda_.cuCtxSetCurrent(game_.cuda_context), "cuCtxSetCurrent");
    for (Stream &stream : streams_) {
        make_stream(stream);
    }
}

void Player::play() {
    uint64_t played = 0;
    while (!game_.stop) {
        const uint64_t left = game_.steps_left.load(std::memory_order_relaxed);
        if (left == 0 || left > uint64_t(-1) / 2) {
            return;
        }
        game_.steps_left.fetch_sub(1, std::memory_order_relaxed);
        step();
        if (++played % most_queued == 0) {
            check(cuda_.cuStreamSynchronize(own_stream()), "cuStreamSynchronize");
        }
    }
}

void Player::step() {
    const size_t dice = below(1000);
    if (held_.empty() || (dice < 480 && held_.size() < most_held)) {
        allocate();
    } else if (dice < 700) {
        release();
    } else if (dice < 780) {
        release_elsewhere();
    } else if (dice < 850) {
        release_unordered();
    } else if (dice < 910) {
        release_after_use_elsewhere();
    } else if (dice < 975) {
        pass_on();
    } else if (dice < 981) {
        capture(true);
    } else if (dice < 983) {
        capture(false);
    } else if (dice < 993) {
        replay();
    } else if (dice < 999) {
        replace_stream();
    } else {
        trim();
    }
}

void Player::allocate() {
    Held block;
    block.size = any_size();
    block.stream = any_stream();
    const bool unordered = below(8) == 0;
    std::shared_lock peace(game_.unordered_calls, std::defer_lock);
    if (unordered) {
        peace.lock();
    }
    check(emm_memalloc(game_.context, block.size, unordered ? EMM_STREAM_UNORDERED : block.stream,
                       &block.ptr),
          "emm_memalloc");
    use(block, block.stream);
    held_.push_back(block);
}

void Player::release() {
    Held block = take_random();
    use(block, block.stream);
    free(block, block.stream);
}

void Player::release_elsewhere() {
    Held block = take_random();
    const CUstream stream = any_stream();
    order(block.stream, stream);
    use(block, stream);
    free(block, stream);
}

// The device is at work on it, and nobody is told where.
void Player::release_unordered() {
    Held block = take_random();
    const CUstream stream = any_stream();
    order(block.stream, stream);
    use(block, stream);
    const std::shared_lock peace(game_.unordered_calls);
    free(block, EMM_STREAM_UNORDERED);
}

// Its own stream is not ordered after the use.
void Player::release_after_use_elsewhere() {
    Held block = take_random();
    const CUstream home = block.stream, stream = any_stream();
    order(home, stream);
    check(emm_record_use(game_.context, block.ptr, block.size, stream), "emm_record_use");
    use(block, stream);
    free(block, home);
}

// Blocks of the common streams are freed there by any thread.
void Player::pass_on() {
    Held block = take_random();
    const CUstream stream = game_.common[below(game_.common.size())];
    order(block.stream, stream);
    use(block, stream);
    game_.put(block);
    if (auto other = game_.take()) {
        use(*other, other->stream);
        free(*other, other->stream);
    }
}

// --- graphs --------------------------------------------------------------------------------------

// Allocates and frees inside, leaves a block to the graph, and gives it one that it found.
void Player::capture(bool announced) {
    const Stream &stream = streams_[below(own_streams)];
    if (graphs_.size() == most_graphs || stream.registered != announced) {
        return;
    }
    std::unique_lock peace(game_.unordered_calls, std::defer_lock);
    if (announced) {
        check(emm_capture_begin(game_.context, stream.handle), "emm_capture_begin");
    } else {
        peace.lock();
    }
    check(cuda_.cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "cuStreamBeginCapture");
    for (int i = 0; i < 3; i++) {
        Held block;
        block.size = any_size();
        check(emm_memalloc(game_.context, block.size, stream.handle, &block.ptr), "emm_memalloc");
        use(block, stream.handle);
        use(block, stream.handle);
        check(emm_memfree(game_.context, block.ptr, 0, stream.handle), "emm_memfree");
    }
    for (size_t i = 0; i < held_.size(); i++) {
        if (held_[i].stream == stream.handle) {
            const Held block = std::exchange(held_[i], held_.back());
            held_.pop_back();
            game_.turn.take(block.ptr, block.size, block.pattern, block.pattern, stream.handle);
            check(emm_memfree(game_.context, block.ptr, 0, stream.handle), "emm_memfree");
            break;
        }
    }
    CUgraph graph = nullptr;
    check(cuda_.cuStreamEndCapture(stream.handle, &graph), "cuStreamEndCapture");
    if (announced) {
        check(emm_capture_end(game_.context, stream.handle), "emm_capture_end");
    }
    CUgraphExec exec = nullptr;
    check(cuda_.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuda_.cuGraphDestroy(graph), "cuGraphDestroy");
    graphs_.push_back({exec, stream.handle});
}

void Player::replay() {
    if (graphs_.empty()) {
        return;
    }
    const size_t number = below(graphs_.size());
    Graph &graph = graphs_[number];
    const CUstream stream = own_stream();
    order(graph.last, stream);
    graph.last = stream;
    check(cuda_.cuGraphLaunch(graph.exec, stream), "cuGraphLaunch");
    if (below(4) == 0) {
        drop_graph(number);
    }
}

// It may be running.
void Player::drop_graph(size_t number) {
    check(cuda_.cuGraphExecDestroy(graphs_[number].exec), "cuGraphExecDestroy");
    graphs_[number] = graphs_.back();
    graphs_.pop_back();
}

// --- streams -------------------------------------------------------------------------------------

void Player::make_stream(Stream &stream) {
    check(cuda_.cuStreamCreate(&stream.handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    stream.registered = below(2) == 0;
    if (stream.registered) {
        check(emm_stream_register(game_.context, stream.handle), "emm_stream_register");
    }
}

// Its work need not be done.
void Player::drop_stream(Stream &stream) {
    if (stream.registered) {
        check(emm_stream_retire(game_.context, stream.handle), "emm_stream_retire");
    }
    check(cuda_.cuStreamDestroy(stream.handle), "cuStreamDestroy");
}

// The handle may come back at once, for this thread or for another.
void Player::replace_stream() {
    Stream &stream = streams_[below(own_streams)];
    const CUstream heir = game_.common[below(game_.common.size())];
    order(stream.handle, heir);
    for (Held &block : held_) {
        block.stream = block.stream == stream.handle ? heir : block.stream;
    }
    for (Graph &graph : graphs_) {
        graph.last = graph.last == stream.handle ? heir : graph.last;
    }
    drop_stream(stream);
    make_stream(stream);
}

// --- blocks --------------------------------------------------------------------------------------

void Player::order(CUstream before, CUstream after) {
    if (before == after) {
        return;
    }
    CUevent event = nullptr;
    check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuda_.cuEventRecord(event, before), "cuEventRecord");
    check(cuda_.cuStreamWaitEvent(after, event, 0), "cuStreamWaitEvent");
    check(cuda_.cuEventDestroy(event), "cuEventDestroy");
}

void Player::use(Held &block, CUstream stream) {
    unsigned next = game_.last_pattern.fetch_add(1, std::memory_order_relaxed) + 1;
    next += next == 0;
    game_.turn.take(block.ptr, block.size, block.pattern, next, stream);
    block.pattern = next;
    block.stream = stream;
}

void Player::free(const Held &block, emm_stream stream) {
    check(emm_memfree(game_.context, block.ptr, below(2) ? block.size : 0, stream), "emm_memfree");
}

Held Player::take_random() {
    std::swap(held_[below(held_.size())], held_.back());
    const Held block = held_.back();
    held_.pop_back();
    return block;
}

CUstream Player::any_stream() {
    const size_t number = below(own_streams + game_.common.size() + 1);
    return number < own_streams   ? streams_[number].handle
           : number > own_streams ? game_.common[number - own_streams - 1]
                                  : nullptr;
}

// As many of 16 bytes as of 4 MiB: each power of two is equally likely.
size_t Player::any_size() {
    const size_t power = size_t(16) << below(19);
    return power + below(power);
}

void Player::trim() {
    const std::shared_lock peace(game_.unordered_calls);
    check(emm_trim(game_.context, below(64) << 20, nullptr), "emm_trim");
}

void Player::finish() {
    while (!held_.empty()) {
        release();
    }
    while (!graphs_.empty()) {
        drop_graph(0);
    }
    for (Stream &stream : streams_) { // one by one: others may still be capturing
        check(cuda_.cuStreamSynchronize(stream.handle), "cuStreamSynchronize");
        drop_stream(stream);
    }
}
