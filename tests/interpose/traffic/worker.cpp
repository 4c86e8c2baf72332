// CUDA allows each step, on each stream that it uses: programs rely on a native driver's behaviour
// in these steps.
#include "worker.h"

namespace {

constexpr uint64_t most_queued = 512; // steps between waits

} // namespace

Worker::Worker(World &world, size_t seed) : world_(world), chance_(seed) {
    for (unsigned place = 0; place < place_count; place++) {
        enter(place);
        for (Stream &stream : mine_->streams) {
            make_stream(stream);
        }
    }
}

void Worker::run(size_t steps) {
    for (size_t done = 0; done < steps && !world_.stop; done++) {
        enter(unsigned(below(place_count)));
        step();
        if ((done + 1) % most_queued == 0) {
            check(cu.cuStreamSynchronize(any_own()), "cuStreamSynchronize");
        }
    }
}

void Worker::step() {
    static constexpr struct {
        size_t below;
        void (Worker::*step)();
        size_t Settings::*wanted = nullptr; // NULL: always
    } choices[] = {
        {420, &Worker::allocate},
        {600, &Worker::release},
        {680, &Worker::release_elsewhere},
        {720, &Worker::release_from_another_context, &Settings::foreign},
        {760, &Worker::use_elsewhere},
        {790, &Worker::hand_over, &Settings::handed},
        {820, &Worker::take_over},
        {850, &Worker::ask},
        {870, &Worker::pin_or_unpin, &Settings::pinned},
        {885, &Worker::use_pinned, &Settings::pinned},
        {890, &Worker::register_own, &Settings::pinned},
        {915, &Worker::capture},
        {945, &Worker::launch},
        {965, &Worker::replace_stream, &Settings::replaced},
        {973, &Worker::make_or_end_pool, &Settings::pools},
        {983, &Worker::live_in_own_context, &Settings::lives},
        {993, &Worker::live_in_common_context, &Settings::lives},
        {1000, &Worker::trim},
        {1010, &Worker::live_in_two_contexts, &Settings::per_thread},
        {1020, &Worker::free_beside_host_function},
    };
    const size_t dice = below(1020);
    const bool is_full = mine_->blocks.size() >= world_.settings.live;
    if (mine_->blocks.empty() || (dice < choices[0].below && !is_full)) {
        return allocate();
    }
    for (const auto &choice : choices) {
        if (dice < choice.below && choice.step != &Worker::allocate) {
            const bool wanted = !choice.wanted || world_.settings.*choice.wanted != 0;
            return wanted ? (this->*choice.step)() : release();
        }
    }
}

// --- blocks --------------------------------------------------------------------------------------

void Worker::allocate() {
    const Settings &its = world_.settings;
    Block block;
    block.place = place_;
    block.size = chance_.size();
    block.stream = any_stream();
    const bool goes_abroad = its.abroad && world_.places[0].device != world_.places[2].device;
    const size_t dice = below(100);
    block.kind = dice < 30                   ? Kind::plain
                 : dice < 35                 ? Kind::pitched
                 : dice < 40 && its.managed  ? Kind::managed
                 : dice < 45 && goes_abroad  ? Kind::abroad
                 : dice < 90 || !mine_->pool ? Kind::ordered
                                             : Kind::pooled;
    if (has_got(allocate_as(block), "an allocation")) {
        use(block, block.stream);
        mine_->blocks.push_back(block);
        world_.shown = block.ptr;
    }
}

bool Worker::has_got(CUresult result, const char *what) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY && world_.settings.scarce) {
        return false;
    }
    check(result, what);
    return true;
}

CUresult Worker::allocate_as(Block &block) {
    switch (block.kind) {
    case Kind::plain:
        return cu.cuMemAlloc(&block.ptr, block.size);
    case Kind::pitched: {
        size_t pitch = 0;
        const CUresult result = cu.cuMemAllocPitch(&block.ptr, &pitch, block.size / 16 + 1, 16, 4);
        block.size = pitch * 16;
        return result;
    }
    case Kind::managed:
        return cu.cuMemAllocManaged(&block.ptr, block.size, CU_MEM_ATTACH_GLOBAL);
    case Kind::ordered:
        return cu.cuMemAllocAsync(&block.ptr, block.size, block.stream);
    case Kind::pooled:
        return cu.cuMemAllocFromPoolAsync(&block.ptr, block.size, mine_->pool, block.stream);
    case Kind::abroad: {
        CUmemoryPool pool = nullptr;
        const CUdevice device = world_.places[abroad_of(place_)].device;
        check(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
        return cu.cuMemAllocFromPoolAsync(&block.ptr, block.size, pool, block.stream);
    }
    }
    return CUDA_ERROR_UNKNOWN;
}

// The block's last use is not over at its free.
void Worker::release() {
    Block block = take_block();
    look_into(block);
    use(block, block.stream);
    free(block, block.stream);
}

void Worker::release_elsewhere() {
    Block block = take_block();
    const CUstream stream = any_stream();
    order(block.stream, stream);
    use(block, stream);
    free(block, stream);
}

// On a stream of another context, of the same device; any context may be current.
void Worker::release_from_another_context() {
    Block block = take_block();
    const unsigned other = place_ ^ 1;
    if (other >= place_count || block.kind == Kind::managed) {
        return free(block, block.stream);
    }
    const CUstream stream = all_[other].streams[below(own_streams)].handle;
    order(block.stream, stream);
    if (chance_.one_in(2)) {
        use(block, stream);
    }
    wander();
    check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync on a stream of another context");
}

// The driver's own free waits for the work of cuMemAlloc memory; for other memory the caller waits.
void Worker::free(const Block &block, CUstream stream) {
    const bool unordered = chance_.one_in(3) || block.kind == Kind::managed;
    if (!unordered) {
        return check(cu.cuMemFreeAsync(block.ptr, stream), "cuMemFreeAsync");
    }
    if (!waits_at_free(block.kind)) {
        check(cu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    wander();
    check(cu.cuMemFree(block.ptr), "cuMemFree");
    enter(place_);
}

// The block comes back to its own stream and is kept.
void Worker::use_elsewhere() {
    Block &block = mine_->blocks[below(mine_->blocks.size())];
    const CUstream home = block.stream, stream = any_stream();
    order(home, stream);
    use(block, stream);
    order(stream, home);
    block.stream = home;
}

void Worker::hand_over() {
    HandOver handed;
    handed.block = take_block();
    handed.event = record(handed.block.stream);
    world_.put(handed);
}

void Worker::take_over() {
    auto handed = world_.take();
    if (!handed) {
        return;
    }
    Block &block = handed->block;
    enter(block.place);
    block.stream = any_stream();
    check(cu.cuStreamWaitEvent(block.stream, handed->event, 0), "cuStreamWaitEvent");
    check(cu.cuEventDestroy(handed->event), "cuEventDestroy");
    look_into(block);
    use(block, block.stream);
    free(block, block.stream);
}

void Worker::use(Block &block, CUstream stream) {
    block.pattern = world_.next_pattern();
    write_ends(cu, Ends(block.ptr, block.size), block.pattern, stream);
    block.stream = stream;
}

void Worker::look_into(const Block &block) {
    if (world_.settings.read_back && chance_.one_in(2)) {
        expect_ends(cu, Ends(block.ptr, block.size), block.pattern, block.stream);
    }
}

// --- the rest ------------------------------------------------------------------------------------

// A context's end takes its plain memory with it; some blocks are left to that.
void Worker::finish() {
    for (unsigned place = 0; place < place_count; place++) {
        enter(place);
        while (!mine_->graphs.empty()) {
            drop_graph(0);
        }
        while (!mine_->blocks.empty()) {
            Block block = take_block();
            if (!waits_at_free(block.kind) || chance_.one_in(2)) {
                use(block, block.stream);
                free(block, block.stream);
            }
        }
    }
    for (unsigned place = 0; place < place_count; place++) {
        enter(place);
        for (const Stream &stream : mine_->streams) {
            check(cu.cuStreamSynchronize(stream.handle), "cuStreamSynchronize");
            check(cu.cuStreamDestroy(stream.handle), "cuStreamDestroy");
        }
        if (mine_->pool) {
            check(cu.cuMemPoolDestroy(mine_->pool), "cuMemPoolDestroy");
        }
    }
}

void Worker::enter(unsigned place) {
    place_ = place;
    mine_ = &all_[place];
    check(cu.cuCtxSetCurrent(world_.places[place].context), "cuCtxSetCurrent");
}

void Worker::wander() {
    if (chance_.one_in(3) && world_.settings.wander) {
        check(cu.cuCtxSetCurrent(world_.places[below(place_count)].context), "cuCtxSetCurrent");
    }
}

// The context of the stream is current.
CUevent Worker::record(CUstream stream) {
    CUevent event = nullptr;
    check(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cu.cuEventRecord(event, stream), "cuEventRecord");
    return event;
}

// The context of the first stream is current.
void Worker::order(CUstream before, CUstream after) {
    if (before == after) {
        return;
    }
    const CUevent event = record(before);
    check(cu.cuStreamWaitEvent(after, event, 0), "cuStreamWaitEvent");
    check(cu.cuEventDestroy(event), "cuEventDestroy");
}

CUstream Worker::any_stream() {
    const size_t number = below(own_streams + 1 + (world_.settings.per_thread != 0));
    return number < own_streams    ? mine_->streams[number].handle
           : number == own_streams ? nullptr
                                   : CU_STREAM_PER_THREAD;
}
