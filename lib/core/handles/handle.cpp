#include "core/handles/handle.h"

#include "core/memory/default_memory.h"
#include "core/record/context.h"
#include "core/record/this_thread.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/program_code.h"

#include <memory>
#include <new>
#include <utility>

namespace emm::core {
namespace {

bool is_forked(const emm_context &context) noexcept {
    return (context.state.load(std::memory_order_acquire) & state_forked) != 0;
}

// The handle itself, or the whole that it is a part of.
const emm_memory &whole(const emm_memory &memory) noexcept {
    return memory.parent ? *memory.parent : memory;
}

void order_by(emm_memory &memory, emm_stream stream) noexcept {
    memory.stream_thread.store(thread_number(), std::memory_order_relaxed);
    memory.stream.store(stream, std::memory_order_release);
}

// Another thread's per-thread stream has no name here, so it counts as unordered.
emm_stream stream_of(const emm_memory &memory) noexcept {
    const emm_stream stream = memory.stream.load(std::memory_order_acquire);
    const bool is_mine = memory.stream_thread.load(std::memory_order_relaxed) == thread_number();
    return stream == EMM_STREAM_PER_THREAD && !is_mine ? EMM_STREAM_UNORDERED : stream;
}

// For an allocation whose context is being reset.
[[gnu::noinline, gnu::cold]] emm_status wait_for_reset(emm_context &context) noexcept {
    if (this_thread.depth != 0) {
        // The reset may be waiting for the outer call.
        return observe::fail(EMM_E_BUSY, 0,
                             "the context is being reset, and the reset may be waiting for the "
                             "call that asked for this allocation");
    }
    const Uncancelled uncancelled;
    const OwnerGuard guard(context.manager_lock);
    EMM_TRY(guard.expect_owned("a plugin must not allocate from the context that it is resetting"));
    return admit(context);
}

using Owned = std::unique_ptr<emm_memory>;

// The record is made first, so that nothing can fail once there is memory.
Owned make_record(emm_context &context, uint32_t kind, Deallocator deallocator, size_t size,
                  uint32_t flags) noexcept {
    Owned memory(new (std::nothrow) emm_memory);
    if (!memory) {
        observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no host memory for a handle");
        return memory;
    }
    memory->context = &context;
    memory->kind = static_cast<uint8_t>(kind);
    memory->deallocator = size != 0 ? deallocator : Deallocator::none;
    memory->size = size;
    memory->flags = flags;
    return memory;
}

// Calls `allocate` in an epoch that serves, and returns the handle if the call succeeds.
template <class Allocate>
emm_status fill(Owned memory, emm_memory **ret_memory, Allocate allocate) {
    if (!memory) {
        return EMM_E_OUT_OF_HOST_MEMORY;
    }
    emm_context &context = *memory->context;
    for (;;) {
        {
            const HandleCall call(context.epoch);
            if (Epoch::is_serving(call.epoch())) [[likely]] {
                memory->epoch = call.epoch();
                const emm_status status = allocate(*memory);
                if (status >= EMM_OK) {
                    *ret_memory = memory.release();
                }
                return status;
            }
        }
        EMM_TRY(wait_for_reset(context));
    }
}

emm_status give_back(emm_memory &memory, const void *caller) {
    emm_context &context = *memory.context;
    if (memory.deallocator == Deallocator::none) {
        return EMM_OK;
    }
    const HandleCall call(context.epoch);
    if (call.epoch() != memory.epoch) {
        ++counters().late_frees;
        return EMM_OK;
    }
    const emm_stream stream = stream_of(memory);
    switch (memory.deallocator) {
    case Deallocator::memfree:
        return memfree(context, memory.ptr, memory.size, stream, caller);
    case Deallocator::memhostfree:
        return memhostfree(context, memory.host, memory.size, memory.flags, stream, caller);
    case Deallocator::memunpin:
        return memunpin(context, memory.host, memory.size, caller);
    case Deallocator::memfreemanaged:
        return memfreemanaged(context, memory.ptr, memory.size, stream, caller);
    case Deallocator::close_import:
        return memory.import->close();
    case Deallocator::none:
        break;
    }
    return EMM_OK;
}

// `status` is the result of freeing the memory.
void finalize(const emm_memory &memory, emm_status status) noexcept {
    if (!memory.finalizer) {
        return;
    }
    const Uncancelled uncancelled;
    try {
        const observe::PreservedFailure said(status);
        const observe::ProgramCode program_code;
        memory.finalizer(memory.owner);
    } catch (...) {
        observe::log(EMM_LOG_WARN, "a memory handle's finalizer threw an exception");
    }
}

// The free failed for want of driver or host memory, or by a driver error: a later try may succeed.
// Imports have retries of their own.
bool may_be_tried_again(const emm_memory &memory, emm_status status) noexcept {
    return memory.deallocator != Deallocator::close_import &&
           (status == EMM_E_DRIVER || status == EMM_E_OUT_OF_MEMORY ||
            status == EMM_E_OUT_OF_HOST_MEMORY);
}

// The free did nothing: it failed, or the plugin refuses the stream, because that captures or
// belongs to another context.
bool is_still_allocated(const emm_memory &memory, emm_status status) noexcept {
    return may_be_tried_again(memory, status) ||
           (memory.deallocator != Deallocator::close_import &&
            (status == EMM_E_CAPTURING || status == EMM_E_INVALID_VALUE));
}

// Gives one reference back; true if it was the last. If only one is left, no other thread can add
// more.
bool drop_reference(emm_memory &memory) noexcept {
    return memory.references.load(std::memory_order_acquire) == 1 ||
           memory.references.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

// Whether the host could not unpin the range at a reset or retirement; tries again.
bool is_still_pinned(const emm_memory &memory) noexcept {
    return memory.deallocator == Deallocator::memunpin &&
           !defaults_of(*memory.context).finish_unpin(memory.host);
}

// Whether the handle is inert by a reset or retirement that has not yet given up its memory. A
// context that died gives up nothing.
bool waits_for_drop(const emm_memory &memory) noexcept {
    const emm_context &context = *memory.context;
    return memory.finalizer && memory.deallocator != Deallocator::none &&
           (context.epoch.is_dropping(memory.epoch) || is_still_pinned(memory)) &&
           is_alive(context);
}

// Keeps one reference. Allocates nothing, because the free may have failed for want of memory.
void add_unfinished(emm_memory &memory) noexcept {
    emm_context &context = *memory.context;
    memory.next = context.unfinished.load(std::memory_order_relaxed);
    while (!context.unfinished.compare_exchange_weak(memory.next, &memory)) {
    }
}

// The same, for the next flush or the end of the reset.
void keep_unfinished(emm_memory &memory) noexcept {
    emm_context &context = *memory.context;
    const uint64_t epoch = memory.epoch;
    add_unfinished(memory);
    if (context.epoch.has_dropped(epoch)) {
        finalize_dropped(context); // the end of the reset may have looked before
    }
}

// Ends a reference in `unfinished`.
void end(emm_memory &memory) noexcept {
    finalize(memory, EMM_OK);
    if (drop_reference(memory)) {
        delete &memory;
    }
}

// Called once for each handle that is no view; a view ends with its parent. The finalizer runs
// last, inside no call, so that it may call anything.
emm_status give_up(Owned memory, const void *caller) {
    const emm_status status = give_back(*memory, caller);
    const bool again = may_be_tried_again(*memory, status);
    if (again || waits_for_drop(*memory)) {
        memory->freed.store(!again, std::memory_order_relaxed);
        memory->references.store(1, std::memory_order_relaxed);
        keep_unfinished(*memory.release());
    } else {
        finalize(*memory, status);
    }
    return status;
}

// There is no third try: the allocation ends with the plugin's next reset. A pinned range is the
// exception, because its owner may free it once the finalizer has run: each flush tries to unpin
// it.
void retry(emm_memory *first, uint32_t what) noexcept {
    while (first) {
        emm_memory &memory = *first;
        first = std::exchange(memory.next, nullptr);
        emm_status status = EMM_OK;
        if (what == EMM_DEFERRED_RUN && !memory.freed.exchange(true)) {
            status = give_back(memory, nullptr);
        }
        counters().failed_deferred += status < EMM_OK ? 1 : 0;
        const bool again = memory.finalizer && may_be_tried_again(memory, status);
        memory.freed.store(!again, std::memory_order_relaxed);
        again || waits_for_drop(memory) ? keep_unfinished(memory) : end(memory);
    }
}

[[gnu::constructor]] void have_frees_retried() {
    retry_frees = &retry;
}

uint32_t state_of(const emm_memory &memory) noexcept {
    emm_context &context = *memory.context;
    if (memory.freed.load(std::memory_order_acquire)) {
        return EMM_MEMORY_FREED;
    }
    const bool is_ours = memory.kind != EMM_KIND_EXTERNAL;
    const uint32_t state = context.state.load(std::memory_order_acquire);
    if ((is_ours && memory.epoch != context.epoch.serving()) ||
        (state & (state_retired | state_shut_down)) != 0 || has_died(context)) {
        return EMM_MEMORY_INERT;
    }
    return EMM_MEMORY_LIVE;
}

} // namespace

emm_status admit_or_wait(emm_context &context) noexcept {
    const bool busy =
        (context.state.load(std::memory_order_acquire) & (state_managing | state_unserved)) != 0;
    return busy ? wait_for_reset(context) : admit(context);
}

emm_status make_device(emm_context &context, size_t size, emm_stream stream,
                       emm_memory **ret_memory, const void *caller) {
    Owned memory = make_record(context, EMM_KIND_DEVICE, Deallocator::memfree, size, 0);
    return fill(std::move(memory), ret_memory, [=](emm_memory &made) {
        order_by(made, stream);
        return memalloc(*made.context, size, stream, &made.ptr, caller);
    });
}

emm_status make_host(emm_context &context, size_t size, uint32_t flags, emm_memory **ret_memory,
                     const void *caller) {
    const uint32_t kind = (flags & EMM_HOST_MAPPED) != 0 ? EMM_KIND_MAPPED : EMM_KIND_PINNED;
    Owned memory = make_record(context, kind, Deallocator::memhostfree, size, flags);
    return fill(std::move(memory), ret_memory, [=](emm_memory &made) {
        return memhostalloc(*made.context, size, flags, &made.host, &made.ptr, caller);
    });
}

emm_status make_pinned(emm_context &context, void *host, size_t size, uint32_t flags, void *owner,
                       emm_finalizer finalizer, emm_memory **ret_memory,
                       const void *caller) noexcept {
    const uint32_t kind = (flags & EMM_HOST_MAPPED) != 0 ? EMM_KIND_MAPPED : EMM_KIND_PINNED;
    Owned memory = make_record(context, kind, Deallocator::memunpin, size, flags);
    return fill(std::move(memory), ret_memory, [=](emm_memory &made) {
        const emm_status status = mempin(*made.context, host, size, flags, &made.ptr, caller);
        made.host = size != 0 ? host : nullptr;
        made.owner = owner;
        made.finalizer = finalizer;
        return status;
    });
}

emm_status make_managed(emm_context &context, size_t size, uint32_t flags, emm_memory **ret_memory,
                        const void *caller) noexcept {
    Owned memory = make_record(context, EMM_KIND_MANAGED, Deallocator::memfreemanaged, size, flags);
    return fill(std::move(memory), ret_memory, [=](emm_memory &made) {
        const emm_status status = memallocmanaged(*made.context, size, flags, &made.ptr, caller);
        made.host = reinterpret_cast<void *>(uintptr_t(made.ptr));
        return status;
    });
}

emm_status make_external(emm_context &context, emm_deviceptr ptr, void *host, size_t size,
                         void *owner, emm_finalizer finalizer, emm_memory **ret_memory) noexcept {
    EMM_TRY(admit_or_wait(context));
    Owned memory = make_record(context, EMM_KIND_EXTERNAL, Deallocator::none, size, 0);
    if (!memory) {
        return EMM_E_OUT_OF_HOST_MEMORY;
    }
    memory->epoch = context.epoch.serving();
    memory->ptr = ptr;
    memory->host = host;
    memory->owner = owner;
    memory->finalizer = finalizer;
    *ret_memory = memory.release();
    return EMM_OK;
}

emm_status make_import(emm_context &context, const emm_ipc_handle &handle,
                       emm_status (*open)(emm_memory &made, const emm_ipc_handle &handle),
                       emm_memory **ret_memory) {
    Owned memory = make_record(context, EMM_KIND_IPC, Deallocator::close_import, handle.size, 0);
    return fill(std::move(memory), ret_memory,
                [&](emm_memory &made) { return open(made, handle); });
}

emm_status make_view(emm_memory &memory, size_t start, size_t stop,
                     emm_memory **ret_view) noexcept {
    if (start > stop || stop > memory.size) {
        return observe::refuse("a view: expected 0 <= start <= stop <= {}, found {} to {}",
                               memory.size, start, stop);
    }
    emm_memory &parent = memory.parent ? *memory.parent : memory;
    if (parent.freed.load(std::memory_order_acquire)) {
        return observe::fail(EMM_E_ALREADY_FREED, 0, emm_status_text(EMM_E_ALREADY_FREED));
    }
    const size_t size = stop - start;
    Owned view = make_record(*memory.context, memory.kind, Deallocator::none, size, memory.flags);
    if (!view) {
        return EMM_E_OUT_OF_HOST_MEMORY;
    }
    view->epoch = parent.epoch;
    view->ptr = memory.ptr != 0 && size != 0 ? memory.ptr + start : 0;
    view->host = memory.host && size != 0 ? static_cast<char *>(memory.host) + start : nullptr;
    view->parent = &parent;
    parent.references.fetch_add(1, std::memory_order_relaxed);
    *ret_view = view.release();
    return EMM_OK;
}

void finalize_dropped(emm_context &context) noexcept {
    if (is_forked(context) || !context.unfinished.load()) {
        return;
    }
    const observe::Preserved said; // by the reset
    emm_memory *first = context.unfinished.exchange(nullptr);
    while (first) {
        emm_memory &memory = *first;
        first = std::exchange(memory.next, nullptr);
        if (!context.epoch.has_dropped(memory.epoch)) {
            keep_unfinished(memory);
        } else {
            is_still_pinned(memory) ? add_unfinished(memory) : end(memory);
        }
    }
}

emm_status retain(emm_memory &memory) noexcept {
    memory.references.fetch_add(1, std::memory_order_relaxed);
    return EMM_OK;
}

emm_status release(emm_memory &memory, const void *caller) {
    if (is_forked(*memory.context)) [[unlikely]] {
        return admit(*memory.context);
    }
    if (!drop_reference(memory)) {
        return EMM_OK;
    }
    Owned last(&memory);
    if (memory.parent) {
        return release(*memory.parent, caller);
    }
    return memory.freed.load(std::memory_order_relaxed) ? EMM_OK : give_up(std::move(last), caller);
}

emm_status free_now(emm_memory &memory, const void *caller) {
    if (memory.parent) {
        return observe::fail(
            EMM_E_INVALID_VALUE, 0,
            "a view owns no memory: release the view, or free the handle that it is a part of");
    }
    if (memory.exports.load(std::memory_order_acquire) != 0) {
        return observe::fail(EMM_E_BUSY, 0,
                             "the memory is exported: release its IPC handles before freeing it");
    }
    if (memory.freed.exchange(true, std::memory_order_acq_rel)) {
        return observe::fail(EMM_E_ALREADY_FREED, 0, emm_status_text(EMM_E_ALREADY_FREED));
    }
    const emm_status status = give_back(memory, caller);
    if (is_still_allocated(memory, status)) {
        memory.freed.store(false, std::memory_order_release);
    } else if (waits_for_drop(memory)) {
        memory.references.fetch_add(1, std::memory_order_relaxed);
        keep_unfinished(memory);
    } else {
        finalize(memory, status);
    }
    return status;
}

emm_status set_stream(emm_memory &memory, emm_stream stream) noexcept {
    order_by(memory.parent ? *memory.parent : memory, stream);
    return EMM_OK;
}

emm_status describe(const emm_memory &memory, emm_memory_info *ret_info) noexcept {
    const emm_memory &all = whole(memory);
    auto info = observe::sized<emm_memory_info>();
    info.kind = memory.kind;
    info.state = state_of(all);
    info.flags = memory.flags;
    info.context = memory.context;
    info.ptr = memory.ptr;
    info.host = memory.host;
    info.size = memory.size;
    info.generation = Epoch::generation(all.epoch);
    info.stream = all.stream.load(std::memory_order_acquire);
    info.owner = all.owner;
    info.parent = memory.parent;
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

} // namespace emm::core
