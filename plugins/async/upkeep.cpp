// async's slow half: making and dropping, trimming, limits, and what there is to tell.
#include "async/manager.h"

#include <algorithm>
#include <utility>

namespace emm::async {

using common::is_returned;
using common::RelaxedCapture;

const emm_option Manager::options[] = {
    {"max", nullptr,
     "The most device memory to take, rounded up to the driver's 32 MiB; needs CUDA 12.2.",
     EMM_OPTION_SIZE, 0},
    {"release_threshold", nullptr,
     "Free memory beyond this goes back to the driver whenever a stream is waited for; without it "
     "only a trim and running out of memory give any back.",
     EMM_OPTION_SIZE, 0},
    {"ipc", "0",
     "1: other processes can open the memory; the driver keeps all memory of such a pool, whatever "
     "trims and release_threshold say.",
     EMM_OPTION_FLAG, 0},
    {}};

namespace {

Options read_options(const char *const *option_texts) {
    Options options;
    options.max_bytes = common::size_option(Manager::options, option_texts, "max", 0);
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
    : StreamOrdered("async", host, info), host_(host), context_(info.context), options_(options),
      most_bytes_(device_memory().second),
      pool_(driver_, info.device, options.max_bytes, options.ipc) {
    apply_threshold();
}

emm_status Manager::reset() {
    const RelaxedCapture relaxed(driver_);
    const bool alive = driver_.is_alive(cuda_context_, context_id_);
    if (alive) {
        driver_.check(order_frees(), "ordering a reset behind all work of the context");
    }
    drop_all(alive);
    return EMM_OK;
}

// Rather than take away what may be in use, leave it to the driver and the end of the process.
Manager::~Manager() {
    const RelaxedCapture relaxed(driver_);
    const bool alive = driver_.is_alive(cuda_context_, context_id_);
    if (!alive || order_frees() == CUDA_SUCCESS) {
        drop_all(alive);
    }
}

// What may still be in use by work that the program has not waited for is freed behind that work.
// One way may fail, and the other one too.
CUresult Manager::order_frees() noexcept {
    CUresult result = wait_beside_captures();
    for (int tries = 0; tries < 2 && result != CUDA_SUCCESS; ++tries) {
        result = wait_.unless_capturing(returns_);
    }
    return result;
}

// Waiting for the context, or for an event on it, would invalidate captures, and which streams have
// work is not known here. cuMemFree waits for all of them, and invalidates nothing in relaxed mode.
CUresult Manager::wait_beside_captures() noexcept {
    CUdeviceptr fence = 0;
    const CUresult result = driver_.cuMemAlloc(&fence, 1);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const CUresult waited = driver_.cuMemFree(fence);
    return waited == CUDA_SUCCESS ? waited : driver_.cuMemFree(fence);
}

void Manager::drop_all(bool alive) noexcept {
    Allocations all = allocations_.take_all();
    all.merge(take_postponed());
    while (!all.empty()) {
        drop(all.extract(all.begin()), alive);
    }
    for (Entry entry = graphs_.take_any(); !entry.empty(); entry = graphs_.take_any()) {
        drop(std::move(entry), alive);
    }
    for (Entry entry = take_held_back(); !entry.empty(); entry = take_held_back()) {
        drop(std::move(entry), alive);
    }
    if (alive) {
        driver_.cuStreamSynchronize(returns_); // so that a trim finds all of it free
    }
    forget_all_uses();
}

// The pool and its addresses are ours also after the context, and its streams, have died: then
// nothing uses them any more, and cuMemFree, which needs no context, does not wait for them.
void Manager::drop(Entry entry, bool alive) noexcept {
    const CUresult result =
        alive ? driver_.cuMemFreeAsync(entry.key(), returns_) : driver_.cuMemFree(entry.key());
    if (is_returned(result) || !alive) {
        allocations_.returned(entry.mapped());
    } else {
        postpone(entry); // to be tried again
    }
}

emm_status Manager::defer_cleanup(uint32_t enter) {
    enter ? ++sections_ : --sections_;
    try {
        apply_threshold();
    } catch (...) {
        sections_ -= enter; // it has not begun; an end has come all the same
        throw;
    }
    return EMM_OK;
}

// Sections begin and end on many threads at once, and no lock is held over a driver call: a
// thread that finds the state changed meanwhile repeats it.
void Manager::apply_threshold() {
    const RelaxedCapture relaxed(driver_);
    bool deferring;
    do {
        deferring = sections_ != 0;
        pool_.set_release_threshold(deferring ? UINT64_MAX : options_.release_threshold);
    } while (deferring != (sections_ != 0));
}

emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    if (sections_ != 0) {
        *ret_released = 0;
        return EMM_OK;
    }
    release_postponed();
    const RelaxedCapture relaxed(driver_);
    *ret_released = pool_.trim(keep_bytes);
    return EMM_OK;
}

emm_status Manager::get_memory_info(size_t *ret_free, size_t *ret_total) {
    const RelaxedCapture relaxed(driver_);
    const uint64_t used = pool_.used();
    return tell_memory(pool_.reserved(), used, options_.max_bytes, ret_free, ret_total);
}

emm_status Manager::get_device_total(const emm_host &, int32_t, size_t device_bytes,
                                     const char *const *option_texts, size_t *ret_total) {
    return common::limited_total(device_bytes, read_options(option_texts).max_bytes, ret_total);
}

emm_status Manager::set_access(int32_t peer_device, uint32_t flags) {
    const RelaxedCapture relaxed(driver_);
    pool_.set_access(peer_device, flags);
    return EMM_OK;
}

emm_status Manager::get_stats(emm_stats *ret_stats) {
    const RelaxedCapture relaxed(driver_);
    emm_stats stats;
    allocations_.fill(stats);
    const uint64_t used = pool_.used();
    stats.reserved_bytes = pool_.reserved();
    stats.peak_reserved_bytes = pool_.peak_reserved();
    stats.cached_bytes = stats.reserved_bytes - std::min(stats.reserved_bytes, used);
    emm_copy_sized(ret_stats, &stats);
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
