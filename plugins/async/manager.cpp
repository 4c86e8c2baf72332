// async: the driver's own stream-ordered allocator, cuMemAllocAsync, in a pool of its own.
#include "async/manager.h"

#include <algorithm>

namespace emm::async {

using common::RelaxedCapture;

const emm_option Manager::options[] = {
    {"max", nullptr,
     "The most device memory to take, rounded up to the driver's 32 MiB; needs CUDA 12.2.",
     EMM_OPTION_SIZE, 0},
    {"release_threshold", nullptr,
     "If the pool holds more than this, each synchronization of a stream gives free memory back to "
     "the driver. "
     "Unless given, only a trim or exhaustion returns it.",
     EMM_OPTION_SIZE, 0},
    {"ipc", "0",
     "1: other processes can open the memory; the driver keeps all memory of such a pool, whatever "
     "trims and release_threshold say.",
     EMM_OPTION_FLAG, 0},
    {}};

namespace {

Options read_options(const char *const *option_texts) {
    Options options;
    options.max_bytes = common::max_option("async", Manager::options, option_texts, 0);
    options.release_threshold =
        common::size_option(Manager::options, option_texts, "release_threshold", UINT64_MAX);
    const char *ipc = emm_option_text(Manager::options, option_texts, "ipc");
    options.ipc = ipc && ipc[0] == '1';
    return options;
}

} // namespace

Manager::Manager(const emm_host &host, const emm_context_info &info,
                 const char *const *option_texts)
    : Manager(host, info, read_options(option_texts)) {}

Manager::Manager(const emm_host &host, const emm_context_info &info, const Options &options)
    : SourceManager("async", host, info, info.device, options.max_bytes, options.ipc), host_(host),
      context_(info.context), options_(options) {
    apply_threshold();
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    enter ? ++sections_ : --sections_;
    try {
        apply_threshold();
    } catch (...) {
        sections_ -= enter; // a begin that failed is undone
        throw;
    }
    return EMM_OK;
}

// Many threads begin and end sections at once, and no lock is held during a driver call. So a
// thread repeats the call if the state has changed meanwhile. A call that fails is made again in a
// later free.
void Manager::apply_threshold() {
    const RelaxedCapture relaxed(driver_);
    bool deferring;
    try {
        do {
            deferring = sections_ != 0;
            source_.set_release_threshold(deferring ? UINT64_MAX : options_.release_threshold);
        } while (deferring != (sections_ != 0));
    } catch (...) {
        has_old_threshold_ = true;
        throw;
    }
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    if (has_old_threshold_ && has_old_threshold_.exchange(false)) {
        try {
            apply_threshold();
        } catch (...) { // the next free tries again
        }
    }
    return SourceManager::memfree(ptr, size, stream);
}

emm_status Manager::get_memory_info(size_t *ret_free, size_t *ret_total) {
    const RelaxedCapture relaxed(driver_);
    const uint64_t used = source_.used();
    return tell_memory(source_.reserved(), used, options_.max_bytes, ret_free, ret_total);
}

emm_status Manager::get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                     const char *const *option_texts, size_t *ret_total) {
    return common::limited_total(device_bytes, read_options(option_texts).max_bytes, ret_total);
}

emm_status Manager::check_options(const emm_host &, const char *const *option_texts) {
    read_options(option_texts); // throws
    return EMM_OK;
}

emm_status Manager::set_access(int32_t peer_device, uint32_t flags) {
    const RelaxedCapture relaxed(driver_);
    source_.set_access(peer_device, flags);
    return EMM_OK;
}

emm_status Manager::get_stats(emm_stats *ret_stats) {
    const RelaxedCapture relaxed(driver_);
    emm_stats stats;
    allocations_.fill(stats);
    const uint64_t used = source_.used();
    stats.reserved_bytes = source_.reserved();
    stats.peak_reserved_bytes = source_.peak_reserved();
    stats.cached_bytes = stats.reserved_bytes - std::min(stats.reserved_bytes, used);
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

emm_status Manager::reset_peaks() {
    const RelaxedCapture relaxed(driver_);
    source_.reset_peak();
    allocations_.reset_peaks();
    return EMM_OK;
}

} // namespace emm::async

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::async::Manager>(
        "async", EMM_VERSION,
        "Takes memory from the driver's own stream-ordered pool, cuMemAllocAsync",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_STREAM_ORDERED | EMM_PLUGIN_CACHES |
            EMM_PLUGIN_CAPTURE,
        emm::async::Manager::options);
    return &table;
}
