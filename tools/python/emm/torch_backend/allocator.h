#pragma once

#include "memory.h"
#include "snapshot.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cmath>
#include <cstring>

namespace emm::torch_backend {

void delete_block(void *ptr); // of every tensor whose memory is emm's

// The allocator that PyTorch calls. Blocks of the allocator before this one, and calls about them,
// are passed on to that allocator.
class Allocator final : public CUDAAllocator {
public:
    explicit Allocator(CUDAAllocator *previous) : previous_(previous) {}

    // --- memory

    c10::DataPtr allocate(size_t size) override {
        constexpr size_t exabyte = size_t(1) << 60;
        TORCH_CHECK_WITH(OutOfMemoryError, size < exabyte,
                         "CUDA out of memory. Tried to allocate more than 1EB memory.");
        if (!enabled_) {
            return previous_->allocate(size);
        }
        const DeviceIndex device = c10::cuda::current_device();
        void *ptr = memory_.take(size, device, c10::cuda::getCurrentCUDAStream(device));
        return {ptr, ptr, &delete_block, cuda_device(device)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

    void *raw_alloc(size_t size) override {
        if (!enabled_) {
            return previous_->raw_alloc(size);
        }
        const DeviceIndex device = c10::cuda::current_device();
        return memory_.take(size, device, c10::cuda::getCurrentCUDAStream(device));
    }

    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
        return enabled_ ? memory_.take(size, c10::cuda::current_device(), stream)
                        : previous_->raw_alloc_with_stream(size, stream);
    }

    void raw_delete(void *ptr) override {
        if (ptr && !memory_.give(ptr)) {
            previous_->raw_delete(ptr);
        }
    }

    void copy_data(void *to, const void *from, std::size_t size) const override {
        C10_CUDA_CHECK(cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice));
    }

    void recordStream(const c10::DataPtr &data, c10::cuda::CUDAStream stream) override {
        if (data.get() && data.get_deleter() == &delete_block) {
            memory_.record_use(data.get(), stream.stream());
        } else if (data.get()) {
            previous_->recordStream(data, stream);
        }
    }

    // Pools that PyTorch has keep their memory, as with its own allocator. Memory of a pool is
    // asked for when the pool has ended.
    void emptyCache(MempoolId_t pool) override {
        for (DeviceIndex device = 0; device < most_devices; device++) {
            devices_.empty_cache(device, pool == no_pool);
        }
        if (previous_->initialized()) {
            previous_->emptyCache(pool);
        }
    }

    void cacheInfo(DeviceIndex device, size_t *largest) override {
        size_t free = 0, total = 0;
        if (emm_get_memory_info(devices_.context(device), &free, &total) >= EMM_OK) {
            *largest = std::max(*largest, free);
        }
    }

    void *getBaseAllocation(void *ptr, size_t *size) override {
        emm_block_info info = {};
        info.struct_size = sizeof info;
        for (Device &device : devices_) {
            for (emm_context *context : device.contexts()) {
                if (emm_query(context, address_of(ptr), &info) >= EMM_OK) {
                    if (size) {
                        *size = info.size;
                    }
                    return pointer_to(info.base);
                }
            }
        }
        return previous_->getBaseAllocation(ptr, size);
    }

    // --- settings

    void init(int device_count) override { device_count_.store(device_count); }
    bool initialized() override { return device_count_.load() > 0; }
    bool isEnabled() const override { return enabled_; }

    // Meanwhile memory comes straight from CUDA, by the allocator before.
    void enable(bool value) override {
        if (!value && !previous_->initialized()) {
            previous_->init(device_count_.load());
        }
        previous_->enable(value);
        enabled_ = value;
    }

    std::string name() override { return "emm"; }

    std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override {
        return {};
    }

    double getMemoryFraction(DeviceIndex device) override { return devices_[device].fraction; }

    void setMemoryFraction(double fraction, DeviceIndex device) override {
        TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction: ", fraction,
                    ", expected one between 0 and 1");
        size_t total = 0;
        TORCH_CHECK(emm_get_device_total(device, &total) >= EMM_OK,
                    "emm cannot tell the memory of device ", int(device), ": ", last_words());
        devices_[device].fraction = fraction;
        const auto limit = size_t(std::llround(fraction * double(total)));
        devices_[device].limit = fraction < 1 ? limit : SIZE_MAX;
    }

    // --- figures

    caching::DeviceStats getDeviceStats(DeviceIndex device) override {
        return devices_[device].counters.read(devices_[device].stats(), retries());
    }

    void resetAccumulatedStats(DeviceIndex device) override {
        devices_[device].counters.reset_accumulated(retries());
    }

    void resetPeakStats(DeviceIndex device) override {
        for (emm_context *known : devices_[device].contexts()) {
            emm_context_reset_peaks(known); // a plugin without resets keeps its peaks
        }
        devices_[device].counters.reset_peaks(devices_[device].stats());
    }

    caching::SnapshotInfo snapshot(MempoolId_t wanted, bool include_traces) override {
        caching::SnapshotInfo result{};
        const auto blocks = memory_.blocks().all();
        SnapshotWriter writer(blocks, &result.segments);
        for (DeviceIndex device = 0; device < device_count_; device++) {
            add_pools(writer, device, wanted);
        }
        if (include_traces) {
            memory_.history().read(&result, device_count_);
        }
        record_snapshot(wanted);
        result.config_metadata.last_allocator_settings = "emm";
        return result;
    }

    bool isHistoryEnabled() override { return memory_.history().enabled(); }

    void recordHistory(bool enabled, CreateContextFn recorder, size_t limit, RecordContext when,
                       bool clear, const std::vector<std::string> &skipped) override {
        TORCH_CHECK(when == RecordContext::NEVER || recorder,
                    "stacks are wanted, and PyTorch gave no function that records them");
        memory_.history().configure(enabled, recorder, limit, when, clear, skipped);
    }

    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &what) override {
        memory_.history().annotate(c10::cuda::current_device(), what);
    }

    void pushCompileContext(std::string &name) override { History::compiling().push_back(name); }

    void popCompileContext() override {
        if (!History::compiling().empty()) {
            History::compiling().pop_back();
        }
    }

    void setUserMetadata(const std::string &metadata) override {
        memory_.history().set_metadata(metadata);
    }

    std::string getUserMetadata() override { return memory_.history().metadata(); }

    void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
        memory_.attach(std::move(observer));
    }

    void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
        memory_.history().attach(std::move(tracker));
    }

#if TORCH_VERSION_MINOR >= 12
    // About allocations that a policy of PyTorch's own allocator refuses beforehand.
    void attachOomRejectionObserver(caching::OomRejectionObserver) override {}

    Context getContextForPointer(const void *ptr) override {
        const std::optional<Block> block = memory_.blocks().find(ptr);
        return block ? block->context : nullptr;
    }
#endif
#if TORCH_VERSION_MINOR >= 14
    bool supportsUserMetadata() override {
        return true;
    }

    void annotateMemory(const void *ptr, const std::string &text) override {
        if (const std::optional<Block> block = memory_.blocks().find(ptr)) {
            memory_.history().record_annotation(block->device, address_of(ptr), block->size, text);
        }
    }
#endif

    // --- pools

    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, Filter filter) override {
        devices_.context(device);
        devices_[device].pools.retain(id, nullptr);
        try {
            open_pool(device, id, std::move(filter));
        } catch (...) {
            releasePool(device, id);
            throw;
        }
    }

    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
        const std::optional<bool> announced = devices_[device].pools.close(id);
        if (!announced) {
            previous_->endAllocateToPool(device, id);
        } else if (*announced) {
            emm_capture_end(devices_.known_context(device), EMM_STREAM_LEGACY);
        }
    }

    void releasePool(DeviceIndex device, MempoolId_t id) override {
        GivenUp over;
        if (devices_[device].pools.release(id, &over)) {
            memory_.give_back(device, over);
        } else {
            previous_->releasePool(device, id);
        }
    }

    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<CUDAAllocator> source) override {
        devices_.context(device);
        devices_[device].pools.retain(id, std::move(source));
    }

    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override {
        int users = 0;
        devices_[device].pools.with(id, [&](const Pool &pool) { users = pool.users_; });
        return users;
    }

    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override {
        devices_[device].pools.with(id, [=](Pool &pool) { pool.use_on_oom_ = use_on_oom; });
    }

    void setNoSplit(DeviceIndex device, MempoolId_t id) override {
        devices_[device].pools.with(id, [](Pool &pool) { pool.no_split_ = true; });
    }

    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override {
        std::unordered_set<void *> live;
        size_t others = 0;
        with_pool(device, id, [&](const Pool &pool) {
            others = pool.allocations_;
            for (const auto &[ptr, chunk] : pool.chunks()) {
                if (chunk.requested) {
                    live.insert(ptr);
                }
            }
        });
        if (others > 0) {
            for (const auto &[ptr, block] : memory_.blocks().all()) {
                if (!block.is_part && block.pool == id && block.device == device) {
                    live.insert(ptr);
                }
            }
        }
        return live == expected;
    }

    std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                                MempoolId_t id) override {
        std::shared_ptr<caching::AllocatorState> state;
        with_pool(device, id, [&](const Pool &pool) {
            state = std::make_shared<PoolState>(id, pool.chunks());
        });
        return state;
    }

    caching::CheckpointDelta
    setCheckpointPoolState(DeviceIndex device,
                           std::shared_ptr<caching::AllocatorState> state) override {
        const auto *wanted = dynamic_cast<PoolState *>(state.get());
        TORCH_CHECK(wanted, "this checkpoint is not one of emm's");
        const std::optional<Chunks> before =
            devices_[device].pools.restore(wanted->id_, wanted->chunks_);
        TORCH_CHECK(before, "emm has no such pool on device ", int(device),
                    ", or a segment of it is gone");
        caching::CheckpointDelta delta;
        delta.ptrs_freed = memory_.forget(device, *before);
        for (void *ptr : memory_.remember(device, wanted->id_, wanted->chunks_)) {
            delta.dataptrs_allocd.emplace_back(ptr, ptr, &delete_block, cuda_device(device));
        }
        return delta;
    }

    // Call before the pool's first use.
    void name_pool(MempoolId_t id, PoolName name) {
        devices_.names.set(id, std::move(name));
    }

    emm_context *pool_context(DeviceIndex device, MempoolId_t id) {
        return devices_.pool_context(device, id);
    }

    // --- other processes and devices

    caching::ShareableHandle shareIpcHandle(void *ptr) override {
        const std::optional<emm_ipc_handle> handle = memory_.share(ptr);
        if (!handle) {
            return previous_->shareIpcHandle(ptr);
        }
        return {0, std::string(reinterpret_cast<const char *>(&*handle), sizeof *handle)};
    }

    // Handles of PyTorch's own allocators have another length.
    std::shared_ptr<void> getIpcDevPtr(std::string text) override {
        if (text.size() != sizeof(emm_ipc_handle)) {
            return previous_->getIpcDevPtr(std::move(text));
        }
        emm_ipc_handle handle;
        std::memcpy(&handle, text.data(), sizeof handle);
        emm_memory *memory = nullptr;
        emm_context *context = devices_.context(c10::cuda::current_device());
        TORCH_CHECK(emm_memory_open_ipc(context, &handle, &memory) >= EMM_OK,
                    "emm cannot open a tensor of another process: ", last_words());
        emm_memory_info info = {};
        info.struct_size = sizeof info;
        emm_memory_get_info(memory, &info);
        return {pointer_to(info.ptr), [memory](void *) { emm_memory_release(memory); }};
    }

    void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
        c10::cuda::CUDAGuard guard(device);
        const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled) {
            (void)cudaGetLastError();
        } else {
            C10_CUDA_CHECK(error);
        }
        let_use(device, devices_.context(other), other);
        devices_[other].named.add_peer(device, other);
    }

    // Without peer access only the peer's copy is defined for every kind of memory.
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t size,
                            cudaStream_t stream, bool peer) override {
        return peer || to_device == from_device
                   ? cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream)
                   : cudaMemcpyPeerAsync(to, to_device, from, from_device, size, stream);
    }

private:
    // The filter of a graph accepts streams that capture, and is given before the capture begins.
    // Filters of other users of pools accept the current stream at once.
    void open_pool(DeviceIndex device, MempoolId_t id, Filter filter) {
        Pools &pools = devices_[device].pools;
        const bool is_capture = !filter(c10::cuda::getCurrentCUDAStream(device));
        emm_context *context = devices_.context(device);
        devices_.pool_context(device, id);
        TORCH_CHECK(pools.open(id, std::move(filter), is_capture),
                    "beginAllocateToPool: already recording to mempool_id");
        if (is_capture && emm_capture_begin(context, EMM_STREAM_LEGACY) < EMM_OK) {
            const std::string words = last_words();
            pools.close(id);
            TORCH_CHECK(false, "emm cannot prepare for the capture of a graph: ", words);
        }
    }

    template <class Function>
    void with_pool(DeviceIndex device, MempoolId_t id, Function function) {
        TORCH_CHECK(devices_[device].pools.with(id, function), "emm has no pool ", id.first, ", ",
                    id.second, " on device ", int(device));
    }

    // Adds the segments of pools, then the memory of emm's pools beside these. Idle memory behind a
    // pool with segments belongs to no pool.
    void add_pools(SnapshotWriter &writer, DeviceIndex device, MempoolId_t wanted) {
        Device &on = devices_[device];
        std::map<emm_context *, MempoolId_t> owners;
        on.pools.each([&](MempoolId_t id, const Pool &pool) {
            if (wanted == no_pool || wanted == id) {
                writer.add_pool(device, id, pool);
            }
            if (pool.context_ && !pool.uses_segments()) {
                owners[pool.context_] = id;
            }
        });
        for (emm_context *context : on.contexts()) {
            const auto owner = owners.find(context);
            const MempoolId_t id = owner == owners.end() ? no_pool : owner->second;
            if (wanted == no_pool || wanted == id) {
                writer.add_context(device, id, context, Device::stats_of(context));
            }
        }
    }

    // The traces of a snapshot list the snapshots before it.
    void record_snapshot(MempoolId_t pool) {
        for (DeviceIndex device = 0; device < device_count_; device++) {
            memory_.history().record(TraceEntry::SNAPSHOT, device, 0,
                                     devices_[device].counters.allocated(), nullptr, pool);
        }
    }

    // emm counts them for all devices together.
    static uint64_t retries() {
        emm_counters counters = {};
        counters.struct_size = sizeof counters;
        emm_get_counters(&counters);
        return counters.memory_retries;
    }

    CUDAAllocator *const previous_;
    std::atomic<int> device_count_{0};
    std::atomic<bool> enabled_{true};
    Devices devices_;
    Memory memory_{devices_};
};

} // namespace emm::torch_backend
