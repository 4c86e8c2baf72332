// rmm: RMM's memory resources as a plugin.
//
// RMM knows memory that is allocated and freed on streams. The plugin itself does the rest:
//
//   - Memory for any stream (EMM_STREAM_UNORDERED) is allocated on a private stream, `supply`, and
//     waited for.
//   - Memory that may be in use anywhere is freed on another private stream, `returns`, which waits
//     for an event recorded on the whole context (cuCtxRecordEvent, CUDA 12.5; before that the
//     calling thread waits). Such an event would invalidate captures: while one is announced,
//     these frees are postponed.
//   - RMM's own events and waits would become nodes of a graph: calls on a stream that captures are
//     refused.
//
// RMM calls the CUDA runtime that librmm has inside, in the context that is current, so the plugin
// asks for it to be current. The memory itself comes from emm's driver.
#include "rmm/manager.h"

#include "common/graph_hold.h"

#include <algorithm>
#include <rmm/error.hpp>
#include <utility>

namespace emm::over_rmm {

using common::capture_of;
using common::is_late;
using common::RelaxedCapture;

namespace {

// Translates exceptions of RMM to emm's statuses.
template <class Function> auto translated(Function function) -> decltype(function()) {
    try {
        return function();
    } catch (const ::rmm::out_of_memory &error) {
        throw PluginError(EMM_E_OUT_OF_MEMORY, 0, error.what());
    } catch (const std::exception &error) {
        throw PluginError(EMM_E_DRIVER, 0, error.what());
    }
}

} // namespace

emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    if (stream == EMM_STREAM_UNORDERED) {
        release_postponed();
    }
    refuse_capture(stream);
    Entry entry = common::LiveAllocations::make_entry(size);
    const RelaxedCapture relaxed(driver_);
    void *ptr = nullptr;
    try {
        ptr = allocate_or_reclaim(size, arena_stream(stream));
    } catch (...) {
        allocations_.failed();
        throw;
    }
    *ret_ptr = reinterpret_cast<emm_deviceptr>(ptr);
    allocations_.add(std::move(entry), *ret_ptr);
    return EMM_OK;
}

// A request that runs out of memory carries out postponed frees, and waits for those that other
// threads carry out.
void *Manager::allocate_or_reclaim(size_t size, emm_stream stream) {
    try {
        return allocate(size, stream);
    } catch (const PluginError &error) {
        if (error.status() != EMM_E_OUT_OF_MEMORY) {
            throw;
        }
    }
    release_postponed(true);
    under_way_.wait();
    return allocate(size, stream);
}

// RMM rounds sizes up, and sizes near 2^64 to 0.
void *Manager::allocate(size_t size, emm_stream stream) {
    // The device's bound may have been raised meanwhile.
    const size_t device_bytes = size > device_bytes_ ? device_memory().second : device_bytes_;
    if (size > device_bytes) {
        common::refuse(EMM_E_OUT_OF_MEMORY, "rmm: the device has %zu bytes", device_bytes);
    }
    const bool for_any = stream == EMM_STREAM_UNORDERED;
    const ::cuda::stream_ref used(for_any ? static_cast<CUstream>(supply_) : stream);
    void *const ptr = translated([&] { return resource_->memory.allocate(used, size, alignment); });
    if (for_any) {
        const CUresult result = driver_.cuStreamSynchronize(supply_);
        if (result != CUDA_SUCCESS) {
            resource_->memory.deallocate(used, ptr, size, alignment);
            driver_.fail(result, "waiting for memory that any stream may use");
        }
    }
    return ptr;
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    if (stream == EMM_STREAM_UNORDERED) {
        release_postponed();
    }
    refuse_capture(stream);
    if (stream != EMM_STREAM_UNORDERED) {
        driver_.expect_own(cuda_context_, stream);
    }
    const RelaxedCapture relaxed(driver_);
    stream = arena_stream(stream);
    take_back(ptr, size, [&](Entry &entry, bool is_used_elsewhere) {
        if (stream != EMM_STREAM_UNORDERED && !is_used_elsewhere) {
            give_back(entry, stream);
        } else if (wait_for_everything()) {
            give_back(entry, returns_);
        } else {
            postpone(entry);
        }
    });
    return EMM_OK;
}

// An arena knows a stream by its handle. If a new stream gets an old handle, no order exists
// between its work and the former stream's frees. So the new stream waits for all work of the
// context. While captures are announced, which that would invalidate, the call is served without a
// stream.
emm_stream Manager::arena_stream(emm_stream stream) {
    const bool is_default = stream == EMM_STREAM_LEGACY || stream == CU_STREAM_LEGACY ||
                            stream == EMM_STREAM_PER_THREAD;
    if (options_.kind != Options::Kind::arena || is_default || stream == EMM_STREAM_UNORDERED) {
        return stream;
    }
    unsigned long long id = 0;
    driver_.check(driver_.cuStreamGetId(stream, &id), "cuStreamGetId");
    {
        std::lock_guard lock(ids_mutex_);
        if (stream_ids_.try_emplace(stream, id).first->second == id) {
            return stream;
        }
    }
    const CUresult result = wait_.unless_capturing(stream);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
        return EMM_STREAM_UNORDERED;
    }
    driver_.check(result, "ordering a new stream behind the former one of its handle");
    std::lock_guard lock(ids_mutex_);
    stream_ids_[stream] = id;
    return stream;
}

// After the end of the driver or the context, its memory is gone.
void Manager::give_back(Entry &entry, emm_stream stream) noexcept {
    if (driver_.is_alive(cuda_context_, context_id_)) {
        resource_->memory.deallocate(::cuda::stream_ref(stream),
                                     reinterpret_cast<void *>(entry.key()), entry.mapped(),
                                     alignment);
    }
    allocations_.returned(entry.mapped());
    entry = {};
}

// One event serves all postponed frees. Only calls that may record a context event may call this:
// the event would invalidate an unannounced capture. Beside an announced one, the caller waits.
void Manager::release_postponed(bool beside_captures) noexcept {
    const bool waits = wait_.is_capturing();
    if (!has_postponed_ || (waits && !beside_captures)) {
        return;
    }
    const RelaxedCapture relaxed(driver_);
    const common::Returns::Scope returning(under_way_);
    Allocations postponed = take_postponed();
    const CUresult result =
        waits ? cuda::wait_beside_captures(driver_) : wait_.unless_capturing(returns_);
    while (!postponed.empty()) {
        Entry entry = postponed.extract(postponed.begin());
        if (result == CUDA_SUCCESS || is_late(result)) {
            give_back(entry, returns_);
        } else {
            postpone(entry);
        }
    }
}

void Manager::refuse_capture(emm_stream stream) const {
    if (stream != EMM_STREAM_UNORDERED && capture_of(driver_, stream).active) {
        throw PluginError(EMM_E_CAPTURING, 0,
                          "the stream is capturing, which RMM's resources cannot serve");
    }
}

} // namespace emm::over_rmm
