// managed: memory that may exceed the device's (cuMemAllocManaged). The driver moves its pages
// between the device and the host as they are used.
//
//   - Pages go to the device as they are allocated (cuMemPrefetchAsync), on the request's stream;
//     for an unordered request, or if the stream captures, on a stream of the plugin's own. The
//     memory may be used meanwhile.
//   - Freed memory waits in emm's queue (common/queued_frees.h). Meanwhile the driver need not save
//     its contents (cuMemDiscardBatchAsync, CUDA 13), if the free's stream orders the prefetch and
//     all uses before the free.
//
// Both only save time, so neither fails a request.
#include "common/queued_frees.h"
#include "common/stream_ordered.h"

#include <map>
#include <mutex>

namespace emm::managed {
namespace {

using namespace common;

struct Driver : StreamDriver {
    explicit Driver(const emm_host &host) : StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuMemAllocManaged);
    EMM_CUDA_REQUIRED(cuCtxGetDevice);
    EMM_CUDA_REQUIRED(cuDeviceGetAttribute);
    EMM_CUDA_REQUIRED(cuStreamGetId);
    // Some releases of cuda.h lack these functions or declare them differently.
    using Prefetch = CUresult(CUDAAPI *)(CUdeviceptr, size_t, CUdevice, CUstream);
    using Discard = CUresult(CUDAAPI *)(CUdeviceptr *, size_t *, size_t, unsigned long long,
                                        CUstream);
    Prefetch prefetch = required<Prefetch>("cuMemPrefetchAsync", 12000);
    Discard discard = optional<Discard>("cuMemDiscardBatchAsync", 13000); // NULL before CUDA 13
};

class Manager : public QueuedFrees {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts)
        : Manager(host, info, Driver(host), option_texts) {}

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status reset();
    static emm_status get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                       const char *const *option_texts, size_t *ret_total);
    static emm_status check_options(const emm_host &, const char *const *option_texts);

    static const emm_option options[];

private:
    // By id, because handles are reused.
    using Streams = std::map<emm_deviceptr, unsigned long long>;

    Manager(const emm_host &host, const emm_context_info &info, const Driver &driver,
            const char *const *option_texts)
        : QueuedFrees("managed", host, info, most_bytes(driver, option_texts)), driver_(driver),
          cuda_device_(find_device(driver)),
          prefetches_(driver_, info.cuda_context, info.context_id) {}

    static std::pair<size_t, size_t> device_memory(const Driver &driver); // free, total
    static uint64_t most_bytes(const Driver &driver, const char *const *option_texts);
    static CUdevice find_device(const Driver &driver);
    bool may_discard(emm_stream stream, unsigned long long &ret_id) const;
    bool discard(emm_deviceptr ptr, size_t size, emm_stream stream) const;
    Streams::node_type forget_stream(emm_deviceptr base) noexcept;

    const Driver driver_;
    const CUdevice cuda_device_;
    const PrivateStream prefetches_;
    std::mutex mutex_;
    // The stream that orders all uses, including the prefetch; empty: none, or unknown.
    Streams in_order_on_;
};

const emm_option Manager::options[] = {
    {"max", nullptr,
     "The most memory to take, on the device and the host "
     "together, without the driver's rounding; unless given, twice the device's memory.",
     EMM_OPTION_SIZE, 0},
    {}};

std::pair<size_t, size_t> Manager::device_memory(const Driver &driver) {
    const RelaxedCapture relaxed(driver);
    size_t free = 0, total = 0;
    driver.check(driver.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return {free, total};
}

emm_status Manager::check_options(const emm_host &, const char *const *option_texts) {
    max_option("managed", options, option_texts, 0); // throws
    return EMM_OK;
}

uint64_t Manager::most_bytes(const Driver &driver, const char *const *option_texts) {
    return max_option("managed", options, option_texts, 2 * uint64_t(device_memory(driver).second));
}

// Without concurrent access, managed memory cannot exceed the device, and does not move.
CUdevice Manager::find_device(const Driver &driver) {
    CUdevice device = 0;
    int concurrent = 0;
    driver.check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
    driver.check(driver.cuDeviceGetAttribute(&concurrent,
                                             CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device),
                 "cuDeviceGetAttribute");
    if (!concurrent) {
        refuse(EMM_E_NOT_SUPPORTED,
               "managed: this device cannot have more managed memory than device memory ("
               "CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0)");
    }
    return device;
}

emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    const bool on_own = stream == EMM_STREAM_UNORDERED || capture_of(driver_, stream).active;
    const auto call = [&](CUdeviceptr *ptr) {
        return driver_.cuMemAllocManaged(ptr, size, CU_MEM_ATTACH_GLOBAL);
    };
    Streams in_order;
    if (unsigned long long id = 0; !on_own && may_discard(stream, id)) {
        in_order[0] = id; // before the memory, so that nothing can fail in between
    }
    allocate(size, "cuMemAllocManaged", call, ret_ptr);
    if (!in_order.empty()) {
        const std::lock_guard lock(mutex_);
        Streams::node_type node = in_order.extract(in_order.begin());
        node.key() = *ret_ptr;
        in_order_on_.insert(std::move(node));
    }
    const RelaxedCapture relaxed(driver_);
    driver_.prefetch(*ret_ptr, size, cuda_device_, on_own ? CUstream(prefetches_) : stream);
    return EMM_OK;
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Streams::node_type in_order = forget_stream(ptr); // before another thread has the address
    const auto restore = [&] {
        const std::lock_guard lock(mutex_);
        in_order_on_.insert(std::move(in_order));
    };
    try {
        Pending pending = take(ptr, size, stream);
        unsigned long long id = 0;
        const bool is_whole = !pending || pending->beside_capture || in_order.empty() ||
                              !may_discard(stream, id) || in_order.mapped() != id ||
                              !discard(ptr, pending->entry.mapped(), stream);
        const emm_status status = pending ? queue(std::move(pending), is_whole) : EMM_OK;
        if (status < EMM_OK) {
            restore();
        }
        return status;
    } catch (...) {
        restore();
        throw;
    }
}

// A discard must not overlap the prefetch or a use. The per-thread stream has the same handle in
// each thread, and on the legacy stream CUDA discards nothing. The stream does not capture.
bool Manager::may_discard(emm_stream stream, unsigned long long &ret_id) const {
    return driver_.discard && stream != EMM_STREAM_LEGACY && stream != EMM_STREAM_OF(1) &&
           stream != EMM_STREAM_PER_THREAD && stream != EMM_STREAM_UNORDERED &&
           driver_.cuStreamGetId(stream, &ret_id) == CUDA_SUCCESS;
}

// Whether the driver will forget what the memory holds.
bool Manager::discard(emm_deviceptr ptr, size_t size, emm_stream stream) const {
    const RelaxedCapture relaxed(driver_);
    return driver_.discard(&ptr, &size, 1, 0, stream) == CUDA_SUCCESS;
}

emm_status Manager::record_use(emm_deviceptr ptr, size_t size, emm_stream stream) {
    QueuedFrees::record_use(ptr, size, stream); // throws
    emm_block_info info = {};
    state_->allocations.find(ptr, info);
    forget_stream(info.base);
    return EMM_OK;
}

Manager::Streams::node_type Manager::forget_stream(emm_deviceptr base) noexcept {
    const std::lock_guard lock(mutex_);
    return in_order_on_.extract(base);
}

// Reports the device's figures, so that programs which size themselves by them stay on the device;
// others allocate beyond them.
emm_status Manager::get_memory_info(size_t *ret_free, size_t *ret_total) {
    const uint64_t taken = state_->taken_bytes;
    const auto [free, total] = device_memory(driver_);
    *ret_total = std::min<uint64_t>(total, state_->most_bytes);
    // The driver may count our pages on the device as used.
    *ret_free =
        std::min<uint64_t>(*ret_total - std::min<uint64_t>(*ret_total, taken), free + taken);
    return EMM_OK;
}

emm_status Manager::get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                     const char *const *option_texts, size_t *ret_total) {
    return limited_total(device_bytes, max_option("managed", options, option_texts, 0), ret_total);
}

// CUDA has no handle for managed memory.
emm_status Manager::get_ipc_handle(emm_deviceptr ptr, size_t, emm_ipc_handle *) {
    QueuedFrees::record_use(ptr, 0, nullptr); // throws
    refuse(EMM_E_NOT_SUPPORTED, "managed: CUDA cannot share managed memory with other processes; "
                                "pool, async:ipc=1 and passthrough can export");
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *) {
    refuse(EMM_E_NOT_OWNED, "managed: the IPC handle is not an export of this manager");
}

emm_status Manager::reset() {
    {
        const std::lock_guard lock(mutex_);
        in_order_on_.clear();
    }
    return QueuedFrees::reset();
}

} // namespace
} // namespace emm::managed

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::managed::Manager>(
        "managed", EMM_VERSION,
        "Takes managed memory, which may exceed the device's and moves to it as it is used",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CAPTURE, emm::managed::Manager::options);
    return &table;
}
