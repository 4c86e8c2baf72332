#pragma once

#include "block_table.h"
#include "devices.h"
#include "exports.h"
#include "history.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>

namespace emm::torch_backend {

// Allocates and frees memory, and keeps account of it.
class Memory {
public:
    explicit Memory(Devices &devices) : devices_(devices) {}

    // NULL for 0 bytes. Throws c10::OutOfMemoryError, or c10::Error with emm's words.
    void *take(size_t size, DeviceIndex device, cudaStream_t stream) {
        if (size == 0) {
            return nullptr;
        }
        emm_context *context = devices_.context(device);
        Request request{{size, stream, devices_[device].pools.receiving(stream), device, false,
                         false, context, history_.gather(RecordContext::STATE)}};
        const emm_status status = try_take(request);
        if (C10_UNLIKELY(status < EMM_OK)) {
            refuse(status, request);
        }
        Block &block = request.block;
        record(TraceEntry::ALLOC, request.ptr, block, block.context);
        report(request.ptr, block, true);
        enter(request.ptr, std::move(block));
        return request.ptr;
    }

    // False: the block is not live, or not emm's. Observers hear of the free before the memory may
    // be given out again.
    bool give(void *ptr) {
        const std::optional<Block> block = blocks_.take(ptr);
        if (!block) {
            return false;
        }
        devices_[block->device].counters.remove(block->size, block->is_part);
        record(TraceEntry::FREE_REQUESTED, ptr, *block, history_.gather(RecordContext::ALL));
        record(TraceEntry::FREE_COMPLETED, ptr, *block, nullptr);
        report(ptr, *block, false);
        if (block->exported) {
            exports_.end(origin_of(*block), ptr);
        }
        if (block->is_part) {
            give_to_pool(ptr, *block);
        } else {
            emm_memfree(block->origin, address_of(ptr), block->size, block->stream);
            leave(*block);
        }
        return true;
    }

    void record_use(void *ptr, cudaStream_t stream) {
        const std::optional<Block> block = blocks_.find(ptr);
        if (!block || block->stream == stream) {
            return;
        }
        if (block->is_part) {
            devices_[block->device].pools.share(block->pool, ptr, stream);
            return;
        }
        TORCH_CHECK(emm_record_use(block->origin, address_of(ptr), 0, stream) >= EMM_OK,
                    "emm cannot record the use of a tensor on another stream: ", last_words());
    }

    // The handle of a live block; nothing: the block is not emm's.
    std::optional<emm_ipc_handle> share(void *ptr) {
        const std::optional<Block> block = blocks_.find(ptr);
        if (!block) {
            return std::nullopt;
        }
        blocks_.mark_exported(ptr);
        return exports_.begin(origin_of(*block), ptr, block->size);
    }

    // Gives back the segments, and the pool of emm's, that a pool of PyTorch's no longer needs.
    void give_back(DeviceIndex device, const GivenUp &over) {
        for (const Segment &segment : over.segments) {
            devices_[device].counters.remove_segment(segment.size);
            if (segment.source) {
                segment.source->raw_delete(segment.base);
            } else {
                emm_memfree(segment.context, address_of(segment.base), segment.size,
                            EMM_STREAM_UNORDERED);
            }
        }
        if (over.context) {
            end_use(device, over.context);
        }
    }

    // Ends the use of a pool of emm's that has no live memory.
    void end_use(DeviceIndex device, emm_context *context) {
        const RelaxedCapture relaxed;
        if (relaxed.has_driver()) {
            devices_[device].counters.sample(devices_[device].stats());
            emm_trim(context, 0, nullptr);
            devices_[device].named.give(context);
        }
    }

    // Forgets the blocks that were live in a pool before its rewind. Gives the addresses of those
    // that were live.
    std::vector<void *> forget(DeviceIndex device, const Chunks &chunks) {
        std::vector<void *> forgotten;
        for (const auto &[ptr, chunk] : chunks) {
            if (chunk.requested && blocks_.take(ptr)) {
                devices_[device].counters.remove(chunk.requested, true);
                forgotten.push_back(ptr);
            }
        }
        return forgotten;
    }

    // Enters the blocks that are live in a pool since its rewind.
    std::vector<void *> remember(DeviceIndex device, MempoolId_t pool, const Chunks &chunks) {
        emm_context *context = devices_[device].pools.context(pool);
        std::vector<void *> live;
        for (const auto &[ptr, chunk] : chunks) {
            if (chunk.requested) {
                enter(ptr,
                      {chunk.requested, chunk.stream, pool, device, false, true, context, nullptr});
                live.push_back(ptr);
            }
        }
        return live;
    }

    void attach(caching::OutOfMemoryObserver observer) {
        Lock guard(observers_lock_);
        observers_.push_back(std::move(observer));
    }

    BlockTable &blocks() { return blocks_; }
    History &history() { return history_; }

private:
    struct Request {
        Block block; // says where the memory has come from
        void *ptr = nullptr;
        bool is_limited = false; // by set_per_process_memory_fraction
        bool is_last = false;    // memory was made free for this request
    };

    // When memory runs out, PyTorch's callbacks may first give something back: blocks that were
    // sent to other processes. Then idle segments go back. The pools that may be used on out of
    // memory come last.
    emm_status try_take(Request &request) {
        emm_status status = try_once(request);
        if (C10_LIKELY(status != EMM_E_OUT_OF_MEMORY)) {
            return status;
        }
        if (collected()) {
            status = try_once(request);
        }
        if (status == EMM_E_OUT_OF_MEMORY && did_give_back(request)) {
            request.is_last = true;
            status = try_once(request);
        }
        return status == EMM_E_OUT_OF_MEMORY && borrow(request) ? EMM_OK : status;
    }

    emm_status try_once(Request &request) {
        Block &block = request.block;
        if (block.pool == no_pool) {
            return take_from_emm(request);
        }
        Pools &pools = devices_[block.device].pools;
        block.origin = pools.enter(block.pool);
        block.is_part = !block.origin;
        if (block.is_part) {
            block.origin = pools.context(block.pool);
            return take_from_pool(request);
        }
        const emm_status status = take_from_emm(request);
        if (status < EMM_OK) {
            leave(block);
        }
        return status;
    }

    emm_status take_from_emm(Request &request) {
        const Block &block = request.block;
        request.is_limited = exceeds_limit(block.device, block_size(block.size));
        if (request.is_limited) {
            return EMM_E_OUT_OF_MEMORY;
        }
        emm_deviceptr address = 0;
        const emm_status status = emm_memalloc(block.origin, block.size, block.stream, &address);
        request.ptr = pointer_to(address);
        return status;
    }

    bool exceeds_limit(DeviceIndex device, size_t more) {
        const size_t limit = devices_[device].limit.load(std::memory_order_relaxed);
        return limit != SIZE_MAX && devices_[device].counters.taken() + more > limit;
    }

    emm_status take_from_pool(Request &request) {
        const RelaxedCapture relaxed;
        const Block &block = request.block;
        Device &device = devices_[block.device];
        device.pools.collect();
        request.ptr = device.pools.take(block.pool, block.size, block.stream);
        if (request.ptr) {
            return EMM_OK;
        }
        Segment segment = device.pools.plan(block.pool, block.size);
        request.is_limited = exceeds_limit(block.device, segment.size);
        const emm_status status =
            request.is_limited ? EMM_E_OUT_OF_MEMORY : fill(&segment, request.is_last);
        if (status >= EMM_OK) {
            device.counters.add_segment(segment.size);
            device.counters.sample(device.stats());
            request.ptr =
                device.pools.adopt(block.pool, std::move(segment), block.size, block.stream);
        }
        return status;
    }

    // The segment must outlive the capture, so it is not allocated on the stream that captures.
    static emm_status fill(Segment *segment, bool is_last) {
        if (segment->source) {
            segment->base = static_cast<char *>(ask(*segment->source, segment->size, is_last));
            return segment->base ? EMM_OK : EMM_E_OUT_OF_MEMORY;
        }
        emm_deviceptr address = 0;
        const emm_status status =
            emm_memalloc(segment->context, segment->size, EMM_STREAM_UNORDERED, &address);
        segment->base = static_cast<char *>(pointer_to(address));
        return status;
    }

    // Some allocators throw when memory runs out. The program gets the exception of the last call.
    static void *ask(CUDAAllocator &foreign, size_t size, bool is_last) {
        if (is_last) {
            return foreign.raw_alloc(size);
        }
        try {
            return foreign.raw_alloc(size);
        } catch (const std::exception &) {
            return nullptr;
        }
    }

    static bool is_foreign(const Block &block) { return block.is_part && !block.origin; }

    // Gives back emm's cached memory too, once the device is done with it: emm itself waits only
    // for memory of the pool that is short, and not for its siblings'. A foreign allocator asks
    // CUDA past emm.
    bool did_give_back(const Request &request) {
        const Block &block = request.block;
        const RelaxedCapture relaxed;
        const GivenUp idle{devices_[block.device].pools.take_idle(block.pool), nullptr};
        give_back(block.device, idle);
        const bool may_help = !request.is_limited && block.size <= total(block);
        const bool has_trimmed = may_help && devices_.trim(block.device);
        return has_trimmed || (may_help && is_foreign(block)) || !idle.segments.empty();
    }

    size_t total(const Block &block) {
        size_t free = 0, total = 0;
        emm_get_memory_info(origin_of(block), &free, &total);
        return total;
    }

    bool borrow(Request &request) {
        Block &block = request.block;
        if (block.pool != no_pool) {
            return false;
        }
        const RelaxedCapture relaxed;
        Pools &pools = devices_[block.device].pools;
        pools.collect();
        request.ptr = pools.borrow(block.size, block.stream, &block.pool);
        if (request.ptr) {
            block.is_part = true;
            block.origin = pools.context(block.pool);
            return true;
        }
        return !request.is_limited && borrow_from_emm(request);
    }

    // If the plugin bounds each pool, one pool may be full and another have room.
    bool borrow_from_emm(Request &request) {
        Pools &pools = devices_[request.block.device].pools;
        for (MempoolId_t id : pools.lenders()) {
            emm_context *context = pools.context(id);
            Request other = request;
            other.block.pool = id;
            if (context && may_hold(Device::stats_of(context), request.block.size) &&
                try_once(other) >= EMM_OK) {
                request = std::move(other);
                return true;
            }
        }
        return false;
    }

    // A part that other streams use waits for them. In a capture their use cannot be known, and the
    // part waits for the end of the pool.
    void give_to_pool(void *ptr, const Block &block) {
        Pools &pools = devices_[block.device].pools;
        GivenUp over;
        const std::vector<Stream> users = pools.put(block.pool, ptr, &over);
        give_back(block.device, over);
        if (users.empty()) {
            return;
        }
        const RelaxedCapture relaxed;
        Uses uses;
        if (uses.record(users)) {
            pools.await(block.pool, ptr, std::move(uses));
        }
    }

    // An allocation of emm's has ended, or was not made.
    void leave(const Block &block) {
        if (block.pool != no_pool) {
            give_back(block.device, devices_[block.device].pools.leave(block.pool));
        }
    }

    // The context that owns the block, if any does.
    emm_context *origin_of(const Block &block) {
        return block.origin ? block.origin : devices_.known_context(block.device);
    }

    static bool collected() {
        bool freed = false;
        for (const std::string &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
            freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
        }
        return freed;
    }

    void enter(void *ptr, Block block) {
        devices_[block.device].counters.add(block.size, block.is_part);
        blocks_.insert(ptr, std::move(block));
    }

    void record(TraceEntry::Action action, void *ptr, const Block &block, Context context) {
        history_.record(action, block.device, address_of(ptr), block.size, block.stream, block.pool,
                        std::move(context));
    }

    void report(void *ptr, const Block &block, bool taken) {
        if (const c10::impl::PyInterpreter *trace = c10::impl::GPUTrace::get_trace()) {
            taken ? (*trace)->trace_gpu_memory_allocation(c10::kCUDA, address_of(ptr))
                  : (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, address_of(ptr));
        }
        if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
            const auto bytes = int64_t(block_size(block.size));
            Device &on = devices_[block.device];
            c10::reportMemoryUsageToProfiler(ptr, taken ? bytes : -bytes, on.counters.allocated(),
                                             on.stats().reserved_bytes, cuda_device(block.device));
        }
    }

    // emm's words are read first: the questions and the observers may call emm.
    [[noreturn]] void refuse(emm_status status, const Request &request) {
        const Block &block = request.block;
        const std::string words = request.is_limited  ? limit_words(block)
                                  : is_foreign(block) ? "The allocator of the pool has no memory."
                                                      : last_words();
        TORCH_CHECK(status == EMM_E_OUT_OF_MEMORY, "emm cannot allocate ", block.size,
                    " bytes on device ", int(block.device), ". ", words);
        size_t free = 0, total = 0;
        emm_get_memory_info(origin_of(block), &free, &total);
        const std::string pytorchs = pytorchs_words(block, free, total);
        tell_out_of_memory(block, free, total);
        TORCH_CHECK_WITH(OutOfMemoryError, false, pytorchs, " ", words);
    }

    // Programs parse these words. PyTorch does not count its cache as free.
    std::string pytorchs_words(const Block &block, size_t free, size_t total) {
        using c10::CachingAllocator::format_size;
        Device &device = devices_[block.device];
        const emm_stats stats = device.stats();
        const size_t allocated = device.counters.allocated();
        const size_t cached = std::min<size_t>(stats.cached_bytes, free);
        const size_t reserved = std::max<size_t>(stats.reserved_bytes, allocated);
        const size_t limit = device.limit.load();
        return c10::str("CUDA out of memory. Tried to allocate ", format_size(block.size), ". GPU ",
                        int(block.device), " has a total capacity of ", format_size(total),
                        " of which ", format_size(free - cached), " is free. ",
                        limit == SIZE_MAX ? "" : format_size(limit) + " allowed; ",
                        "Of the allocated memory ", format_size(allocated),
                        " is allocated by PyTorch, and ", format_size(reserved - allocated),
                        " is reserved by PyTorch but unallocated.");
    }

    std::string limit_words(const Block &block) {
        Device &device = devices_[block.device];
        return c10::str(block.size, " bytes asked for, ", device.counters.taken(),
                        " bytes are allocated, and set_per_process_memory_fraction allows ",
                        device.limit.load());
    }

    void tell_out_of_memory(const Block &block, size_t free, size_t total) {
        Device &device = devices_[block.device];
        device.counters.add_out_of_memory();
        history_.record(TraceEntry::OOM, block.device, free, block.size, block.stream, block.pool,
                        block.context);
        c10::reportOutOfMemoryToProfiler(int64_t(block.size), device.counters.allocated(),
                                         device.stats().reserved_bytes, cuda_device(block.device));
        for (const caching::OutOfMemoryObserver &observer : observers()) {
            observer(block.device, block.size, total, free);
        }
    }

    std::vector<caching::OutOfMemoryObserver> observers() {
        Lock guard(observers_lock_);
        return observers_;
    }

    Devices &devices_;
    BlockTable blocks_;
    History history_;
    Exports exports_;
    std::mutex observers_lock_;
    std::vector<caching::OutOfMemoryObserver> observers_;
};

} // namespace emm::torch_backend
