#pragma once

#include "named_pools.h"
#include "pinned_figures.h"
#include "uses.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <list>
#include <map>
#include <optional>
#include <utility>

namespace emm::torch_backend {

using c10::cuda::CUDAStream;

void delete_pinned(void *ptr); // of every tensor whose pinned memory is emm's

struct PinnedBlock {
    size_t size = 0; // as asked for
    DeviceIndex device = 0;
    MempoolId_t pool = no_pool; // the pool of the graph whose capture allocated it
    std::vector<CUDAStream> users;
};

// PyTorch's pinned memory. A tensor's memory is one allocation of emm's, of the size asked for.
//
//   - A tensor that no stream has used goes back on a stream that never has work, so emm may give
//     its memory out again at once.
//   - A tensor that one stream has used goes back on that stream. A tensor that several streams
//     have used, or one of another device, waits here for an event of each.
//   - A launch of a graph uses again what the capture has used. Such memory waits until PyTorch
//     releases the graph's pool.
//
// emm is never called with the lock held; CUDA is called so only by the filters of captures.
class PinnedAllocator final : public at::HostAllocator {
    using Accepts = std::function<bool(c10::Stream)>;
    using Clock = std::chrono::steady_clock;
    using Kept = std::pair<void *, PinnedBlock>;

    // The context that serves a device.
    struct Served {
        std::atomic<emm_context *> context{nullptr};
        cudaStream_t idle = nullptr; // a stream that never has work
    };

    // A stream that never has work, and that emm knows. Its destructor ends it unless it was
    // released.
    class IdleStream {
    public:
        IdleStream(emm_context *context, DeviceIndex device) : context_(context) {
            const RelaxedCapture relaxed;
            const c10::cuda::CUDAGuard on(device);
            C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
        }
        ~IdleStream() {
            if (stream_) {
                emm_stream_retire(context_, stream_);
                (void)cudaStreamDestroy(stream_);
            }
        }
        IdleStream(const IdleStream &) = delete;
        IdleStream &operator=(const IdleStream &) = delete;

        emm_status announce() { return emm_stream_register(context_, stream_); }
        cudaStream_t release() { return std::exchange(stream_, nullptr); }

    private:
        emm_context *context_;
        cudaStream_t stream_ = nullptr;
    };

    struct GraphPool {
        int users = 0;
        std::vector<Kept> kept; // freed, and used by a graph
    };

    // PyTorch allocates to this pool now.
    struct Open {
        MempoolId_t id;
        Accepts filter;
        emm_context *announced; // the context that was told of a capture; NULL: no capture
    };

    // Freed, and perhaps still in use by several streams.
    struct Waiting {
        void *ptr;
        PinnedBlock block;
        Uses uses;
    };

public:
    // Serves each device by its primary context or, with a name, by the pool of that name in that
    // context.
    PinnedAllocator(at::HostAllocator *previous, std::optional<PoolName> pool)
        : previous_(previous), pool_(std::move(pool)) {}

    at::DataPtr allocate(size_t size) override {
        void *ptr = size ? take(size) : nullptr;
        return {ptr, ptr, &delete_pinned, c10::DeviceType::CPU};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &delete_pinned; }

    void copy_data(void *to, const void *from, std::size_t size) const override {
        default_copy_data(to, from, size);
    }

    // PyTorch calls this for every CPU tensor that it copies without blocking. False: the tensor is
    // not pinned by an allocator of PyTorch's.
    bool record_event(void *ptr, void *base, c10::Stream stream) override {
        const CUDAStream user(stream);
        {
            Lock guard(lock_);
            auto found = live_.find(base);
            found = found == live_.end() ? live_.find(ptr) : found;
            if (found != live_.end()) {
                std::vector<CUDAStream> &users = found->second.users;
                if (std::find(users.begin(), users.end(), user) == users.end()) {
                    users.push_back(user);
                }
                return true;
            }
        }
        return previous_->record_event(ptr, base, stream);
    }

    void give(void *ptr) noexcept {
        std::optional<PinnedBlock> block = leave(ptr);
        if (!block || keep_for_graph(ptr, &*block)) {
            return;
        }
        const auto begin = Clock::now();
        if (!give_to_emm(ptr, *block)) {
            await(ptr, std::move(*block));
        }
        Lock guard(lock_);
        figures_.add_free_time(begin);
    }

    void empty_cache() override {
        collect();
        for (const Served &served : served_) {
            if (emm_context *context = served.context.load()) {
                emm_trim(context, 0, nullptr);
            }
        }
        previous_->empty_cache();
    }

    // --- figures

    at::HostStats get_stats() override {
        const size_t reserved = reserved_bytes();
        Lock guard(lock_);
        return figures_.read(reserved);
    }

    void reset_accumulated_stats() override {
        Lock guard(lock_);
        figures_.reset_accumulated();
    }

    void reset_peak_stats() override {
        const size_t reserved = reserved_bytes();
        Lock guard(lock_);
        figures_.reset_peaks(reserved);
    }

    // --- pools of graphs

    // As in the device's allocator: the filter of a graph accepts streams that capture, and is
    // given before the capture begins.
    void begin_allocate_to_pool(MempoolId_t id, Accepts filter) override {
        const DeviceIndex device = c10::cuda::current_device();
        const bool capture = !filter(c10::cuda::getCurrentCUDAStream(device).unwrap());
        emm_context *context = serve(device).context;
        TORCH_CHECK(!capture || emm_capture_begin(context, EMM_STREAM_LEGACY) >= EMM_OK,
                    "emm cannot prepare for the capture of a graph: ", last_words());
        Lock guard(lock_);
        pools_[id].users++;
        open_.push_back({id, std::move(filter), capture ? context : nullptr});
        open_count_.store(open_.size(), std::memory_order_release);
    }

    void end_allocate_to_pool(MempoolId_t id) override {
        emm_context *announced = nullptr;
        {
            Lock guard(lock_);
            const auto found = std::find_if(open_.begin(), open_.end(),
                                            [id](const Open &each) { return each.id == id; });
            if (found != open_.end()) {
                announced = found->announced;
                open_.erase(found);
                open_count_.store(open_.size(), std::memory_order_release);
                id = no_pool;
            }
        }
        if (announced) {
            emm_capture_end(announced, EMM_STREAM_LEGACY);
        } else if (id != no_pool) {
            previous_->end_allocate_to_pool(id);
        }
    }

    void release_pool(MempoolId_t id) override {
        std::vector<Kept> over;
        {
            Lock guard(lock_);
            const auto found = pools_.find(id);
            if (found != pools_.end()) {
                if (--found->second.users == 0) {
                    over = std::move(found->second.kept);
                    pools_.erase(found);
                }
                id = no_pool;
            }
        }
        if (id != no_pool) {
            previous_->release_pool(id);
        }
        for (const Kept &each : over) {
            give_after_all_work(each.first, each.second);
        }
    }

private:
    // --- taking

    void *take(size_t size) {
        collect();
        PinnedBlock block{size, device_to_serve(), capturing_pool(), {}};
        emm_context *context = serve(block.device).context;
        void *ptr = nullptr;
        const auto begin = Clock::now();
        emm_status status = emm_memhostalloc(context, size, 0, &ptr, nullptr);
        if (C10_UNLIKELY(status == EMM_E_OUT_OF_HOST_MEMORY) && collect(true)) {
            status = emm_memhostalloc(context, size, 0, &ptr, nullptr);
        }
        TORCH_CHECK(status >= EMM_OK, "emm cannot allocate ", size,
                    " bytes of pinned memory: ", last_words());
        Lock guard(lock_);
        figures_.add(size, begin);
        live_.emplace(ptr, std::move(block));
        return ptr;
    }

    // As in PyTorch's own allocator: a thread whose device is not in use makes no context there.
    DeviceIndex device_to_serve() {
        const DeviceIndex current = c10::cuda::current_device();
        if (current < most_devices && served_[size_t(current)].context.load()) {
            return current;
        }
        return c10::cuda::getDeviceIndexWithPrimaryContext().value_or(current);
    }

    Served &serve(DeviceIndex device) {
        TORCH_CHECK(device >= 0 && device < most_devices, "emm serves devices 0 to ",
                    most_devices - 1, ", not ", int(device));
        Served &served = served_[size_t(device)];
        if (!served.context.load(std::memory_order_acquire)) {
            begin_to_serve(device, &served);
        }
        return served;
    }

    void begin_to_serve(DeviceIndex device, Served *served) {
        emm_context *context = nullptr;
        emm_status status = emm_context_for_device(device, &context);
        if (status >= EMM_OK && pool_) {
            status = pool_->open(context, &context);
        }
        TORCH_CHECK(status >= EMM_OK, "emm cannot serve device ", int(device), ": ", last_words());
        IdleStream idle(context, device);
        TORCH_CHECK(idle.announce() >= EMM_OK, "emm cannot register a stream of device ",
                    int(device), ": ", last_words());
        Lock guard(lock_);
        if (!served->context.load()) { // else another thread was first
            served->idle = idle.release();
            served->context.store(context, std::memory_order_release);
        }
    }

    // The pool of the graph that the current stream captures.
    MempoolId_t capturing_pool() {
        if (open_count_.load(std::memory_order_acquire) == 0) {
            return no_pool;
        }
        const c10::Stream stream = c10::cuda::getCurrentCUDAStream().unwrap();
        Lock guard(lock_);
        for (const Open &each : open_) {
            if (each.filter(stream)) {
                return each.announced ? each.id : no_pool;
            }
        }
        return no_pool;
    }

    // --- giving back

    std::optional<PinnedBlock> leave(void *ptr) {
        Lock guard(lock_);
        const auto found = live_.find(ptr);
        if (found == live_.end()) {
            return std::nullopt;
        }
        PinnedBlock block = std::move(found->second);
        live_.erase(found);
        figures_.remove(block.size);
        return block;
    }

    bool keep_for_graph(void *ptr, PinnedBlock *block) {
        if (block->pool == no_pool || block->users.empty()) {
            return false;
        }
        {
            Lock guard(lock_);
            const auto found = pools_.find(block->pool);
            if (found != pools_.end()) {
                found->second.kept.emplace_back(ptr, std::move(*block));
                return true;
            }
        }
        give_after_all_work(ptr, *block); // a launch of the graph may still run
        return true;
    }

    // False: several streams may use the block, or emm does not know the stream that does.
    bool give_to_emm(void *ptr, const PinnedBlock &block) {
        const Served &served = served_[size_t(block.device)];
        cudaStream_t stream = served.idle;
        if (!block.users.empty()) {
            if (block.users.size() > 1 || block.users[0].device_index() != block.device) {
                return false;
            }
            stream = block.users[0].stream();
        }
        return emm_memhostfree(served.context, ptr, block.size, 0, stream) >= EMM_OK;
    }

    void give_after_all_work(void *ptr, const PinnedBlock &block) {
        emm_memhostfree(served_[size_t(block.device)].context, ptr, block.size, 0,
                        EMM_STREAM_UNORDERED);
    }

    // While a stream captures, its uses end with its graph, which is unknown here. Then the memory
    // stays taken, as in PyTorch's own allocator.
    void await(void *ptr, PinnedBlock block) {
        Uses uses;
        if (record(block.users, &uses)) {
            block.users.clear();
            Lock guard(lock_);
            waiting_.push_back({ptr, std::move(block), std::move(uses)});
            waiting_count_.store(waiting_.size());
        }
    }

    static bool record(const std::vector<CUDAStream> &streams, Uses *uses) {
        const RelaxedCapture relaxed;
        try {
            for (const CUDAStream &stream : streams) {
                const c10::cuda::CUDAGuard on(stream.device());
                if (!uses->record({stream.stream()})) {
                    return false;
                }
            }
            return true;
        } catch (const std::exception &) { // the driver is gone
            return false;
        }
    }

    // Gives emm the blocks that streams no longer use, the oldest first; with `wait`, all blocks.
    // False: no block was given.
    bool collect(bool wait = false) {
        if (waiting_count_.load() == 0) {
            return false;
        }
        std::list<Waiting> all;
        {
            Lock guard(lock_);
            all.swap(waiting_);
        }
        const size_t before = all.size();
        const RelaxedCapture relaxed;
        while (!all.empty()) {
            const Waiting &oldest = all.front();
            if (wait) {
                oldest.uses.wait();
            }
            if (!oldest.uses.are_over()) {
                break;
            }
            give_to_emm(oldest.ptr, oldest.block);
            all.pop_front();
        }
        const bool any = all.size() != before;
        Lock guard(lock_);
        waiting_.splice(waiting_.begin(), all);
        waiting_count_.store(waiting_.size());
        return any;
    }

    size_t reserved_bytes() {
        size_t total = 0;
        for (const Served &served : served_) {
            emm_stats stats = {};
            stats.struct_size = sizeof stats;
            emm_context *context = served.context.load();
            if (context && emm_get_stats(context, &stats) >= EMM_OK) {
                total += stats.host_reserved_bytes;
            }
        }
        return total;
    }

    at::HostAllocator *const previous_;
    const std::optional<PoolName> pool_;
    std::array<Served, most_devices> served_;
    std::mutex lock_;
    ska::flat_hash_map<void *, PinnedBlock> live_;
    std::list<Waiting> waiting_;
    std::atomic<size_t> waiting_count_{0};
    std::map<MempoolId_t, GraphPool> pools_;
    std::vector<Open> open_;
    std::atomic<size_t> open_count_{0};
    PinnedFigures figures_;
};

} // namespace emm::torch_backend
