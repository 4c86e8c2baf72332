// Making and dropping managers, options, and reports.
#include "common/driver_pool.h"
#include "rmm/manager.h"

#include <algorithm>
#include <cstring>
#include <cuda_runtime_api.h>
#include <rmm/error.hpp>
#include <string>

namespace emm::over_rmm {

using common::RelaxedCapture;

const emm_option Manager::options[] = {
    {"resource", "pool|arena|binning|async", "Which of RMM's resources serves.", EMM_OPTION_CHOICE,
     0},
    {"initial", "0",
     "The memory that a pool takes from the driver at its start; not for arena and async.",
     EMM_OPTION_SIZE, 0},
    {"max", nullptr,
     "The most device memory to take; an arena takes all of it at once; not for async.",
     EMM_OPTION_SIZE, 0},
    {}};

namespace {

// The smallest arena that RMM makes: one superblock.
constexpr uint64_t least_arena = 1 << 20;

// RMM accepts multiples of 256 only.
uint64_t round_down(uint64_t bytes) {
    return bytes / alignment * alignment;
}

Options::Kind kind_of(const char *word) {
    return std::strcmp(word, "arena") == 0     ? Options::Kind::arena
           : std::strcmp(word, "binning") == 0 ? Options::Kind::binning
           : std::strcmp(word, "async") == 0   ? Options::Kind::async
                                               : Options::Kind::pool;
}

[[noreturn]] void refuse(const std::string &text) {
    throw PluginError(EMM_E_PLUGIN_SPEC, 0, text.c_str());
}

// Refuses values that RMM would refuse, or take for another value.
void check_limits(const Options &options, const char *const *option_texts) {
    const bool is_arena = options.kind == Options::Kind::arena;
    const char *const max = emm_option_text(Manager::options, option_texts, "max");
    if (max && options.max_bytes < (is_arena ? least_arena : alignment)) {
        refuse(std::string("option max: expected at least ") +
               (is_arena ? "1MiB, of which an arena is made" : "256 bytes") + ", found " + max);
    }
    if (max && options.initial_bytes > options.max_bytes) {
        refuse(std::string("option initial: expected no more than max, which is ") + max +
               ", found " + emm_option_text(Manager::options, option_texts, "initial"));
    }
}

Options read_options(const char *const *option_texts) {
    Options options;
    options.kind = kind_of(emm_option_text(Manager::options, option_texts, "resource"));
    options.initial_bytes =
        round_down(common::size_option(Manager::options, option_texts, "initial", 0));
    options.max_bytes = round_down(common::size_option(Manager::options, option_texts, "max", 0));
    if (options.kind == Options::Kind::arena && options.initial_bytes != 0) {
        refuse("option initial is for pool and binning: an arena takes max at once");
    }
    if (options.kind == Options::Kind::async &&
        (options.initial_bytes != 0 || options.max_bytes != 0)) {
        refuse("options initial and max are not for async: RMM gives its pool no limit");
    }
    check_limits(options, option_texts);
    return options;
}

// RMM ignores errors of the CUDA runtime, so a broken runtime would order nothing. Each library has
// its own runtime inside, and all find the same driver. If that runtime sees emm's context as
// current on this thread, the driver is emm's.
void expect_runtime(CUcontext context) {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found = {};
    cudaEvent_t event = nullptr;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, EMM_CUDA_SIGNATURES, 0, &found);
    CUcontext current = context;
    if (error == cudaSuccess && entry) {
        reinterpret_cast<EMM_CUDA_TYPE(cuCtxGetCurrent)>(entry)(&current);
    }
    if (current != context) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "RMM's CUDA runtime finds another driver than emm: EMM_DRIVER and "
                          "libcuda.so.1 have to be the same");
    }
    if (error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    if (error != cudaSuccess || cudaEventDestroy(event) != cudaSuccess) {
        common::refuse(EMM_E_NOT_SUPPORTED, "RMM's CUDA runtime does not work on this driver: %s",
                       cudaGetErrorName(error));
    }
}

} // namespace

Manager::Manager(const emm_host &host, const emm_context_info &info,
                 const char *const *option_texts)
    : StreamOrdered("rmm", host, info), options_(read_options(option_texts)),
      device_bytes_(device_memory().second), taken_(new Taken{driver_}) {
    const RelaxedCapture relaxed(driver_);
    expect_runtime(cuda_context_);
    try {
        resource_ = std::make_unique<Resource>(make_resource(options_, *taken_));
    } catch (const ::rmm::out_of_memory &error) {
        throw PluginError(EMM_E_OUT_OF_MEMORY, 0, error.what());
    } catch (const ::rmm::logic_error &error) {
        throw PluginError(EMM_E_PLUGIN_SPEC, 0, error.what());
    }
}

// A pool of the driver ends with its last allocation. The pool belongs to the device, so it
// outlives its context. cuMemFree does not wait for uses of a pool's memory. For other memory it
// waits for all work, and invalidates no capture. If that fails beside a capture, nothing waits:
// the program has ended the work that uses the memory.
void Manager::empty_pool(bool alive) noexcept {
    if (alive && cuda::wait_beside_captures(driver_) != CUDA_SUCCESS) {
        wait_.unless_capturing(returns_);
        driver_.cuStreamSynchronize(returns_);
    }
    for (const auto &[ptr, size] : allocations_.take_all()) {
        driver_.cuMemFree(ptr);
    }
    for (const auto &[ptr, size] : take_postponed()) {
        driver_.cuMemFree(ptr);
    }
}

// Here RMM waits for its events, and emm's driver waits for all streams as it takes memory back.
// Objects of a dead context are not touched, although RMM would.
Manager::~Manager() {
    const RelaxedCapture relaxed(driver_);
    const bool alive = driver_.is_alive(cuda_context_, context_id_);
    const CUmemoryPool pool = resource_->pool;
    if (pool) {
        empty_pool(alive);
    }
    if (!alive) {
        if (pool) {
            driver_.cuMemPoolDestroy(pool);
        }
        resource_.release();
        taken_.release();
    }
    resource_.reset();
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    sections_ += enter ? 1 : -1;
    return EMM_OK;
}

// RMM does not report the memory that a pool of the driver has taken. The driver does.
Manager::Reserved Manager::reserved() const {
    const CUmemoryPool pool = resource_->pool;
    if (!pool) {
        return {taken_->bytes, taken_->peak_bytes};
    }
    const RelaxedCapture relaxed(driver_);
    return {common::pool_figure(driver_, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
            common::pool_figure(driver_, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)};
}

// The resources that RMM builds itself give nothing back before they end.
emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    if (!resource_->pool || sections_ != 0) {
        *ret_released = 0;
        return EMM_OK;
    }
    const bool has_postponed = has_postponed_;
    release_postponed();
    const RelaxedCapture relaxed(driver_);
    if (has_postponed) {
        driver_.cuStreamSynchronize(returns_); // so that the trim finds this memory free
    }
    *ret_released = common::trim_pool(driver_, resource_->pool, keep_bytes);
    return EMM_OK;
}

emm_status Manager::get_memory_info(size_t *ret_free, size_t *ret_total) {
    const uint64_t taken = reserved().bytes, live = std::min(taken, allocations_.live_bytes());
    return tell_memory(taken, live, options_.max_bytes, ret_free, ret_total);
}

emm_status Manager::get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                     const char *const *option_texts, size_t *ret_total) {
    return common::limited_total(device_bytes, read_options(option_texts).max_bytes, ret_total);
}

emm_status Manager::check_options(const emm_host &, const char *const *option_texts) {
    read_options(option_texts); // throws
    return EMM_OK;
}

emm_status Manager::get_ipc_handle(emm_deviceptr, size_t, emm_ipc_handle *) {
    throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                      "rmm: no export: it would share the block's neighbours too");
}

emm_status Manager::release_ipc_handle(const emm_ipc_handle *) {
    throw PluginError(EMM_E_NOT_OWNED, 0, "rmm: the IPC handle is not an export of this manager");
}

emm_status Manager::get_stats(emm_stats *ret_stats) {
    emm_stats stats;
    allocations_.fill(stats);
    const Reserved taken = reserved();
    stats.reserved_bytes = taken.bytes;
    stats.peak_reserved_bytes = taken.peak_bytes;
    stats.cached_bytes = stats.reserved_bytes -
                         std::min(stats.reserved_bytes, stats.live_bytes + stats.pending_bytes);
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

emm_status Manager::reset_peaks() {
    if (const CUmemoryPool pool = resource_->pool) {
        const RelaxedCapture relaxed(driver_);
        common::reset_pool_peak(driver_, pool);
    }
    taken_->peak_bytes = taken_->bytes.load();
    allocations_.reset_peaks();
    return EMM_OK;
}

} // namespace emm::over_rmm

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::over_rmm::Manager>(
        "rmm", EMM_VERSION, "Serves by the memory resources of RMM: pool, arena, binning, async",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_STREAM_ORDERED | EMM_PLUGIN_CACHES,
        emm::over_rmm::Manager::options);
    return &table;
}
