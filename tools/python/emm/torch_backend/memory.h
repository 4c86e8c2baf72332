#pragma once

#include "block_table.h"
#include "devices.h"
#include "exports.h"
#include "history.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>

namespace emm::torch_backend {

// Takes memory and gives it back, and keeps account of it.
class Memory {
public:
    explicit Memory(Devices &devices) : devices_(devices) {}

    // NULL for 0 bytes. Throws c10::OutOfMemoryError, or c10::Error with emm's words.
    void *take(size_t size, DeviceIndex device, cudaStream_t stream) {
        if (size == 0) {
            return nullptr;
        }
        emm_context *context = devices_.context(device);
        Block block{size,   stream, devices_[device].pools.receiving(stream),
                    device, false,  history_.gather(RecordContext::STATE)};
        void *ptr = nullptr;
        const emm_status status = try_take(context, block, &ptr);
        if (C10_UNLIKELY(status < EMM_OK)) {
            refuse(status, block);
        }
        record(TraceEntry::ALLOC, ptr, block, block.context);
        report(ptr, block, true);
        enter(ptr, std::move(block));
        return ptr;
    }

    // False: it is not live, or not emm's. Memory is told to be free before it may be given out
    // again.
    bool give(void *ptr) {
        const std::optional<Block> block = blocks_.take(ptr);
        if (!block) {
            return false;
        }
        devices_[block->device].counters.remove(block->size);
        record(TraceEntry::FREE_REQUESTED, ptr, *block, history_.gather(RecordContext::ALL));
        record(TraceEntry::FREE_COMPLETED, ptr, *block, nullptr);
        report(ptr, *block, false);
        emm_context *context = devices_.known_context(block->device);
        if (block->exported) {
            exports_.end(context, ptr);
        }
        if (block->pool == no_pool) {
            emm_memfree(context, address_of(ptr), block->size, block->stream);
        } else {
            give_to_pool(ptr, *block);
        }
        return true;
    }

    void record_use(void *ptr, cudaStream_t stream) {
        const std::optional<Block> block = blocks_.find(ptr);
        if (!block || block->stream == stream) {
            return;
        }
        if (block->pool != no_pool) {
            devices_[block->device].pools.share(block->pool, ptr, stream);
            return;
        }
        emm_context *context = devices_.known_context(block->device);
        TORCH_CHECK(emm_record_use(context, address_of(ptr), 0, stream) >= EMM_OK,
                    "emm cannot record the use of a tensor on another stream: ", last_words());
    }

    // The handle of a live block; nothing: it is not emm's.
    std::optional<emm_ipc_handle> share(void *ptr) {
        const std::optional<Block> block = blocks_.find(ptr);
        if (!block) {
            return std::nullopt;
        }
        blocks_.mark_exported(ptr);
        return exports_.begin(devices_.known_context(block->device), ptr, block->size);
    }

    // Segments that their pools do not need any more.
    void give_back(DeviceIndex device, const std::vector<Segment> &segments) {
        for (const Segment &segment : segments) {
            devices_[device].counters.remove_segment(segment.size);
            if (segment.source) {
                segment.source->raw_delete(segment.base);
            } else {
                emm_memfree(devices_.known_context(device), address_of(segment.base), segment.size,
                            EMM_STREAM_UNORDERED);
            }
        }
    }

    // What was live in a pool before it was rewound, and is not any more. Gives its addresses.
    std::vector<void *> forget(DeviceIndex device, const Chunks &chunks) {
        std::vector<void *> forgotten;
        for (const auto &[ptr, chunk] : chunks) {
            if (chunk.requested && blocks_.take(ptr)) {
                devices_[device].counters.remove(chunk.requested);
                forgotten.push_back(ptr);
            }
        }
        return forgotten;
    }

    // What is live in a pool since it was rewound.
    std::vector<void *> remember(DeviceIndex device, MempoolId_t pool, const Chunks &chunks) {
        std::vector<void *> live;
        for (const auto &[ptr, chunk] : chunks) {
            if (chunk.requested) {
                enter(ptr, {chunk.requested, chunk.stream, pool, device, false, nullptr});
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
    // Out of memory, PyTorch's callbacks may give something back: what was sent to other processes.
    emm_status try_take(emm_context *context, const Block &block, void **ret_ptr) {
        emm_status status = try_once(context, block, ret_ptr);
        if (C10_UNLIKELY(status == EMM_E_OUT_OF_MEMORY) && collected()) {
            status = try_once(context, block, ret_ptr);
        }
        return status;
    }

    emm_status try_once(emm_context *context, const Block &block, void **ret_ptr) {
        if (exceeds_limit(block)) {
            return EMM_E_OUT_OF_MEMORY;
        }
        if (block.pool != no_pool) {
            return take_from_pool(context, block, ret_ptr);
        }
        emm_deviceptr address = 0;
        const emm_status status = emm_memalloc(context, block.size, block.stream, &address);
        *ret_ptr = pointer_to(address);
        return status;
    }

    bool exceeds_limit(const Block &block) {
        Device &device = devices_[block.device];
        const size_t limit = device.limit.load(std::memory_order_relaxed);
        return limit != SIZE_MAX && device.counters.allocated() + block_size(block.size) > limit;
    }

    emm_status take_from_pool(emm_context *context, const Block &block, void **ret_ptr) {
        const RelaxedCapture relaxed;
        Pools &pools = devices_[block.device].pools;
        pools.collect();
        *ret_ptr = pools.take(block.pool, block.size, block.stream);
        if (*ret_ptr) {
            return EMM_OK;
        }
        Segment segment = pools.plan(block.pool, block.size);
        const emm_status status = fill(context, &segment);
        if (status >= EMM_OK) {
            devices_[block.device].counters.add_segment(segment.size);
            *ret_ptr = pools.adopt(block.pool, std::move(segment), block.size, block.stream);
        }
        return status;
    }

    // What other streams use waits for them. In a capture that cannot be known, and it waits for
    // the end of the pool.
    void give_to_pool(void *ptr, const Block &block) {
        Pools &pools = devices_[block.device].pools;
        std::vector<Segment> over;
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

    // The segment must outlive the capture, so it is not asked for on the stream that captures.
    static emm_status fill(emm_context *context, Segment *segment) {
        if (segment->source) {
            segment->base = static_cast<char *>(segment->source->raw_alloc(segment->size));
            return segment->base ? EMM_OK : EMM_E_OUT_OF_MEMORY;
        }
        emm_deviceptr address = 0;
        const emm_status status =
            emm_memalloc(context, segment->size, EMM_STREAM_UNORDERED, &address);
        segment->base = static_cast<char *>(pointer_to(address));
        return status;
    }

    static bool collected() {
        bool freed = false;
        for (const std::string &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
            freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
        }
        return freed;
    }

    void enter(void *ptr, Block block) {
        devices_[block.device].counters.add(block.size);
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
    [[noreturn]] void refuse(emm_status status, const Block &block) {
        const std::string words = exceeds_limit(block) ? limit_words(block) : last_words();
        TORCH_CHECK(status == EMM_E_OUT_OF_MEMORY, "emm cannot allocate ", block.size,
                    " bytes on device ", int(block.device), ". ", words);
        size_t free = 0, total = 0;
        emm_get_memory_info(devices_.known_context(block.device), &free, &total);
        const std::string pytorchs = pytorchs_words(block, free, total);
        tell_out_of_memory(block, free, total);
        TORCH_CHECK_WITH(OutOfMemoryError, false, pytorchs, " ", words);
    }

    // Programs parse them. PyTorch does not count its cache as free.
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
        return c10::str(block.size, " bytes asked for, ", device.counters.allocated(),
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
