// pluggable: a library that exports PyTorch's pair of functions
// (torch.cuda.CUDAPluggableAllocator), by emm's rules. common/source_manager.h does the part that
// the pair lacks: memory for any stream, frees with no stream, captures, late frees, resets.
//
//   - The pair gets the request's own stream, or one of the manager's. A free gets its own stream,
//     because the allocation's stream may have been destroyed by then.
//   - The library may give memory straight back to the driver, so in a deferred section it gets no
//     frees.
//   - The library calls the driver by itself. emm checks the memory that it returns: it must be of
//     emm's driver, on the manager's device. If a context has died, the library is not called.
#include "common/source_manager.h"
#include "pluggable/library.h"

#include <atomic>

namespace emm::pluggable {
namespace {

using namespace common;

struct Driver : StreamDriver {
    explicit Driver(const emm_host &host) : StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuDeviceGetCount);
    EMM_CUDA_REQUIRED(cuPointerGetAttributes);
};

int device_count(const Driver &driver) {
    int count = 0;
    driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
    return count;
}

// The library, for one manager.
class Source {
public:
    using Entries = Driver;

    Source(const Driver &driver, const emm_context_info &info, const Names &names)
        : driver_(driver), context_(info.cuda_context), context_id_(info.context_id),
          device_(info.device), library_(names) {
        library_.initialize(device_count(driver));
    }

    CUresult allocate(size_t size, CUstream stream, CUdeviceptr *ret_ptr);
    [[noreturn]] void fail(CUresult result, size_t size) const;
    CUresult free(CUdeviceptr ptr, size_t size, CUstream stream);
    static constexpr const char *freeing = "a free";
    static constexpr bool keeps_freed = false;
    // Memory of the driver's pools belongs to the device, and stays. All other memory ended with
    // the context.
    void free_after_context(CUdeviceptr ptr, size_t size) noexcept;
    void return_unused() noexcept {}
    size_t trim(size_t keep_bytes);
    void empty() noexcept;

    uint64_t cached() const;
    // The most bytes handed out and cached at one time, also for requests that failed afterwards.
    uint64_t peak() const { return peak_; }
    void reset_peak() noexcept { peak_ = handed_out_ + cached(); }

private:
    struct Origin {
        int device = CU_DEVICE_INVALID;
        CUmemoryPool pool = nullptr;
    };
    CUresult ask(CUdeviceptr ptr, Origin &ret) const;
    const char *problem_of(CUdeviceptr ptr, const Origin &origin) const;
    size_t free_bytes() const;

    const Driver &driver_;
    const CUcontext context_;
    const uint64_t context_id_;
    const int32_t device_;
    const Library library_;
    std::atomic<bool> all_pooled_{true}; // every allocation so far came from the driver's pools
    std::atomic<uint64_t> handed_out_{0};
    std::atomic<uint64_t> most_{0}; // handed out since the library was last emptied
    std::atomic<uint64_t> peak_{0};
};

CUresult Source::allocate(size_t size, CUstream stream, CUdeviceptr *ret_ptr) {
    void *const memory = library_.allocate(size, device_, stream);
    if (!memory) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const auto ptr = reinterpret_cast<CUdeviceptr>(memory);
    Origin origin;
    const CUresult result = ask(ptr, origin);
    const char *const problem = problem_of(ptr, origin);
    if (result != CUDA_SUCCESS || problem) {
        if (result != CUDA_SUCCESS || origin.device != CU_DEVICE_INVALID) {
            library_.free(memory, size, device_, stream);
        }
        driver_.check(result, "cuPointerGetAttributes");
        library_.refuse(EMM_E_NOT_SUPPORTED, problem);
    }
    if (!origin.pool) {
        all_pooled_ = false;
    }
    const uint64_t now = handed_out_ += size;
    for (std::atomic<uint64_t> *const highest : {&most_, &peak_}) {
        uint64_t was = *highest;
        while (was < now && !highest->compare_exchange_weak(was, now)) {
        }
    }
    *ret_ptr = ptr;
    return CUDA_SUCCESS;
}

CUresult Source::ask(CUdeviceptr ptr, Origin &ret) const {
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *answers[] = {&ret.device, &ret.pool};
    return driver_.cuPointerGetAttributes(2, attributes, answers, ptr);
}

// NULL: no problem. An unknown address may also be one that the library has kept from a dead
// context.
const char *Source::problem_of(CUdeviceptr ptr, const Origin &origin) const {
    if (origin.device == CU_DEVICE_INVALID) {
        return "returned an address that emm's driver does not know: EMM_DRIVER and the "
               "libcuda.so.1 of the library have to be the same";
    }
    if (origin.device != device_) {
        return "returned memory of another device";
    }
    return ptr % 256 == 0 ? nullptr : "returned an address that is not a multiple of 256";
}

void Source::fail(CUresult result, size_t size) const {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        driver_.fail(result, "waiting for memory that any stream may use");
    }
    char problem[64];
    snprintf(problem, sizeof problem, "has no memory for %zu bytes", size);
    library_.refuse(EMM_E_OUT_OF_MEMORY, problem);
}

CUresult Source::free(CUdeviceptr ptr, size_t size, CUstream stream) {
    if (!driver_.is_alive(context_, context_id_)) {
        handed_out_ -= size;
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    library_.free(reinterpret_cast<void *>(ptr), size, device_, stream);
    handed_out_ -= size;
    return CUDA_SUCCESS;
}

void Source::free_after_context(CUdeviceptr ptr, size_t size) noexcept {
    if (all_pooled_) {
        driver_.cuMemFree(ptr);
    }
    handed_out_ -= size;
}

size_t Source::free_bytes() const {
    size_t free = 0, total = 0;
    driver_.check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
}

// The library does not tell its cache, so it counts as keeping everything ever asked for.
uint64_t Source::cached() const {
    const uint64_t handed_out = handed_out_;
    return library_.can_empty() ? std::max<uint64_t>(most_, handed_out) - handed_out : 0;
}

// All or nothing, because the library cannot empty a part.
size_t Source::trim(size_t keep_bytes) {
    if (cached() <= keep_bytes) {
        return 0;
    }
    const size_t before = free_bytes();
    library_.empty();
    most_ = handed_out_.load();
    return std::max(before, free_bytes()) - before;
}

void Source::empty() noexcept {
    try {
        if (driver_.is_alive(context_, context_id_)) {
            library_.empty();
        }
    } catch (...) { // no caller could be told
    }
}

class Manager : public SourceManager<Source> {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts)
        : SourceManager("pluggable", host, info, info, read_names(option_texts)) {}
    ~Manager() {
        end();
        const RelaxedCapture relaxed(driver_);
        source_.empty();
    }

    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status defer_cleanup(uint32_t enter);
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *handle);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();
    static emm_status check_options(const emm_host &host, const char *const *option_texts);

    static const emm_option options[];

private:
    static Names read_names(const char *const *option_texts);
};

const emm_option Manager::options[] = {
    {"lib", nullptr, "The library, by its absolute path.", EMM_OPTION_LIBRARY, 0},
    {"alloc", nullptr, "Its function void *(ssize_t size, int device, cudaStream_t).",
     EMM_OPTION_TEXT, 0},
    {"free", nullptr, "Its function void (void *, ssize_t size, int device, cudaStream_t).",
     EMM_OPTION_TEXT, 0},
    {"empty", nullptr, "Its function void (void) that returns its cache to the driver, if any.",
     EMM_OPTION_TEXT, 0},
    {"init", nullptr, "Its function void (int device_count), which is called once, if any.",
     EMM_OPTION_TEXT, 0},
    {}};

Names Manager::read_names(const char *const *option_texts) {
    const auto text = [&](const char *name) {
        return emm_option_text(options, option_texts, name);
    };
    return {text("lib"), text("alloc"), text("free"), text("empty"), text("init")};
}

// The library must find the driver that emm uses. If there is no driver yet, its functions are
// looked up later.
emm_status Manager::check_options(const emm_host &host, const char *const *option_texts) {
    const Names names = read_names(option_texts);
    check(names); // throws
    if (host.driver("cuInit", 12000)) {
        static_cast<void>(Library(names)); // the same
    }
    return EMM_OK;
}

// The library could not tell that the stream belongs to another context.
emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    driver_.expect_own(cuda_context_, stream);
    return SourceManager::memfree(ptr, size, stream);
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    sections_ += enter ? 1 : -1;
    release_beside_captures();
    return EMM_OK;
}

emm_status Manager::get_ipc_handle(emm_deviceptr, size_t, emm_ipc_handle *) {
    refuse(EMM_E_NOT_SUPPORTED, "pluggable: no export: it could share a block's neighbours too; "
                                "pool, async:ipc=1 and passthrough can export");
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *) {
    refuse(EMM_E_NOT_OWNED, "pluggable: the IPC handle is not an export of this manager");
}

emm_status Manager::get_stats(emm_stats *ret_stats) {
    emm_stats stats;
    allocations_.fill(stats);
    stats.cached_bytes = source_.cached();
    stats.reserved_bytes += stats.cached_bytes;
    stats.peak_reserved_bytes = std::max(stats.peak_reserved_bytes, source_.peak());
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

emm_status Manager::reset_peaks() {
    source_.reset_peak();
    allocations_.reset_peaks();
    return EMM_OK;
}

} // namespace
} // namespace emm::pluggable

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::pluggable::Manager>(
        "pluggable", EMM_VERSION,
        "Serves by a library with PyTorch's pair of functions (CUDAPluggableAllocator)",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CACHES | EMM_PLUGIN_CAPTURE | EMM_PLUGIN_OPAQUE,
        emm::pluggable::Manager::options);
    return &table;
}
