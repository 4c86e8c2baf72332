#include "core/registry.h"

#include "core/context.h"
#include "core/manager.h"
#include "core/recovery.h"
#include "core/selection.h"
#include "core/watch.h"
#include "observe/error.h"
#include "observe/immortal.h"
#include "observe/log.h"
#include "observe/process.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

namespace emm::core {
namespace {

struct Registry {
    std::mutex mutex;
    std::map<uint64_t, emm_context *> by_id; // a green context's id leads to its primary's record
};

Registry &registry() {
    static observe::Immortal<Registry> the_registry;
    return the_registry.value;
}

// The newest record. Not in the registry: a forked child walks the list, and may find the registry
// half made.
constinit std::atomic<emm_context *> newest{nullptr};

// The last context that this thread has asked for; the id tells whether the handle still means it.
struct Remembered {
    CUcontext cuda_context = nullptr;
    uint64_t id = 0;
    emm_context *context = nullptr;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Remembered remembered;

// In a child that is not to go on: the raw calls look at the state flags alone.
void mark_contexts() {
    for (emm_context *context = first_context(); context; context = context->next) {
        context->state.fetch_or(state_forked, std::memory_order_relaxed);
    }
}

[[gnu::constructor]] void have_contexts_marked() {
    observe::mark_forked_child = &mark_contexts;
}

// If `cuda_context` is a green context: its device's primary one. Asked for once in its life.
emm_status resolve_green(const driver::Driver &driver, CUcontext cuda_context, uint64_t id,
                         CUcontext *ret_context) {
    *ret_context = cuda_context;
    if (!driver.get_stream_context) {
        return EMM_OK;
    }
    const driver::Current current(driver, cuda_context, id);
    CUcontext owner = nullptr;
    CUgreenCtx_st *green = nullptr;
    CUresult result = current.result();
    if (result == CUDA_SUCCESS) {
        result = driver.get_stream_context(nullptr, &owner, &green);
    }
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuStreamGetCtx");
    }
    if (green) {
        *ret_context = owner;
    }
    return EMM_OK;
}

emm_context *find(uint64_t id) {
    std::lock_guard lock(registry().mutex);
    const auto found = registry().by_id.find(id);
    return found == registry().by_id.end() ? nullptr : found->second;
}

// Racing threads each make a record; the first one that is entered stays.
emm_status enter(std::unique_ptr<emm_context> made, emm_context *&ret_context) {
    std::lock_guard lock(registry().mutex);
    const auto [place, is_new] = registry().by_id.try_emplace(made->id, made.get());
    ret_context = place->second;
    if (is_new) {
        made->next = newest.load(std::memory_order_relaxed);
        newest.store(made.release(), std::memory_order_release);
    }
    return EMM_OK;
}

emm_status id_of(const driver::Driver &driver, CUcontext cuda_context, uint64_t *ret_id) {
    unsigned long long id = 0;
    const CUresult result = driver.cuCtxGetId(cuda_context, &id);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return observe::fail(EMM_E_RETIRED, result, "the CUDA context has been destroyed");
    }
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuCtxGetId");
    }
    *ret_id = id;
    return EMM_OK;
}

// By the one thread that has passed the manager_lock and closed the epoch.
void give_up(emm_context &context) noexcept {
    destroy_manager(context); // what is left of it, if this is not the first time
    if (context.retained.exchange(0) != 0) {
        context.driver.cuDevicePrimaryCtxRelease(context.device);
    }
    context.given_up.store(true, std::memory_order_release);
}

// Without waiting: the thread that looks may hold what another thread waits for.
emm_status try_to_give_up(emm_context &context) noexcept {
    const OwnerGuard guard(context.manager_lock, std::try_to_lock);
    if (!guard.owns()) {
        return EMM_E_BUSY;
    }
    if (!context.epoch.try_close()) {
        return EMM_E_BUSY;
    }
    give_up(context);
    context.epoch.open();
    return EMM_OK;
}

bool is_left_behind(const emm_context &context) noexcept {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    return (state & (state_retired | state_forked)) == state_retired &&
           !context.given_up.load(std::memory_order_acquire);
}

// Contexts that have died without being retired. The driver gives their addresses to others, so
// first of all none of them may hand out memory any more; then their managers are given up, except
// those that a call is inside of as far as can be known: the next look finds them again.
void retire_the_dead() {
    const observe::Preserved said;
    for (emm_context *context = first_context(); context; context = context->next) {
        if ((context->state.load(std::memory_order_acquire) & (state_retired | state_forked)) ==
            0) {
            has_died(*context);
        }
    }
    if (this_thread.depth != 0 || is_pressing() || this_thread.managing) {
        return;
    }
    for (emm_context *context = first_context(); context; context = context->next) {
        if (is_left_behind(*context) && watched(*context, observe::EventType::retire, nullptr, [&] {
                                            return try_to_give_up(*context);
                                        }) == EMM_OK) {
            observe::log(EMM_LOG_INFO, name_of(*context) +
                                           " has died without emm_context_retire; its manager "
                                           "is given up");
        }
    }
}

// The record for a context that is not known yet.
emm_status make(const driver::Driver &driver, CUcontext cuda_context, uint64_t id,
                emm_context *&ret_context) {
    retire_the_dead(); // the driver gives their addresses to this one
    CUcontext owner = nullptr;
    emm_status status = resolve_green(driver, cuda_context, id, &owner);
    if (status != EMM_OK) {
        return status;
    }
    if (owner != cuda_context) {
        status = context_from(owner, ret_context);
        if (status == EMM_OK) {
            std::lock_guard lock(registry().mutex);
            registry().by_id.try_emplace(id, ret_context);
        }
        return status;
    }
    auto made = std::make_unique<emm_context>(driver, cuda_context, id, deferred_limits());
    status = identify(*made);
    return status == EMM_OK ? enter(std::move(made), ret_context) : status;
}

bool is_unserved(const emm_context &context) noexcept {
    return (context.state.load(std::memory_order_acquire) & ~state_serving) == state_unserved;
}

// By the one thread that has passed the manager_lock.
emm_status begin_serving(emm_context &context) {
    const emm_status status = make_manager(context);
    if (status != EMM_OK) {
        return status;
    }
    if ((context.selection->plugin->table.capabilities & EMM_PLUGIN_NEEDS_CURRENT) != 0) {
        context.state.fetch_or(state_needs_current, std::memory_order_relaxed);
    }
    watch_if_wanted(context);
    context.state.fetch_and(~state_unserved, std::memory_order_release);
    return admit(context);
}

emm_status refuse_reentry(const emm_context &context) {
    return observe::fail(EMM_E_REENTERED, 0,
                         "the plugin asked for a context (" + name_of(context) +
                             ") while it makes, resets or gives up a manager");
}

// Lets one thread make the manager; the others wait for it and then find it made.
emm_status serve(emm_context &context) {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    if ((state & (state_unserved | state_managing)) == 0) {
        return admit(context);
    }
    // Another thread may be making that one's manager, and its plugin be asking for this one.
    if (this_thread.managing) {
        return refuse_reentry(context);
    }
    const OwnerGuard guard(context.manager_lock);
    if (!guard.owns()) {
        return refuse_reentry(context);
    }
    return is_unserved(context) ? begin_serving(context) : admit(context);
}

// The plugin is at work below this call, and is to finish first; a reset that waited for that here
// would wait for ever.
emm_status refuse_inside(const char *what) {
    if (this_thread.depth == 0 && !is_pressing() && !this_thread.managing) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_REENTERED, 0,
                         std::string("a context cannot be ") + what +
                             " from within a call that the plugin is still working on");
}

emm_status retire_unwatched(emm_context &context) {
    if (const emm_status status = refuse_inside("retired"); status != EMM_OK) {
        return status;
    }
    const OwnerGuard guard(context.manager_lock);
    if (!guard.owns()) {
        return observe::fail(EMM_E_REENTERED, 0, "the plugin retired the context that it serves");
    }
    if ((context.state.fetch_or(state_retired, std::memory_order_acq_rel) & state_forked) != 0) {
        return admit(context);
    }
    const Closed closed(context.epoch);
    give_up(context);
    return EMM_OK;
}

emm_status reset_unwatched(emm_context &context) {
    if (const emm_status status = refuse_inside("reset"); status != EMM_OK) {
        return status;
    }
    const OwnerGuard guard(context.manager_lock);
    if (!guard.owns()) {
        return observe::fail(EMM_E_REENTERED, 0, "the plugin reset the context that it serves");
    }
    if (is_unserved(context)) {
        return begin_serving(context); // an earlier reset could not; there is nothing to drop
    }
    emm_status status = admit_alive(context);
    if (status != EMM_OK) {
        return status;
    }
    const Closed closed(context.epoch);
    return reset_manager(context);
}

} // namespace

emm_context *first_context() noexcept {
    return newest.load(std::memory_order_acquire);
}

emm_status admit_process() noexcept {
    const uint32_t state = observe::process_state.load(std::memory_order_acquire);
    if ((state & observe::process_forked) != 0) {
        return observe::refuse_forked_child();
    }
    if ((state & observe::process_shut_down) != 0) {
        return observe::fail(EMM_E_SHUT_DOWN, 0, emm_status_text(EMM_E_SHUT_DOWN));
    }
    return EMM_OK;
}

emm_status context_from(CUcontext cuda_context, emm_context *&ret_context) {
    const driver::Driver *driver = nullptr;
    uint64_t id = 0;
    emm_status status = driver::load(driver);
    if (status != EMM_OK || (status = id_of(*driver, cuda_context, &id)) != EMM_OK) {
        return status;
    }
    if (remembered.id == id && remembered.cuda_context == cuda_context) {
        const uint32_t state = remembered.context->state.load(std::memory_order_acquire);
        if ((state & ~state_serving) == 0) {
            ret_context = remembered.context;
            return EMM_OK;
        }
    }
    if (remembered.context && remembered.id != id && has_died(*remembered.context)) {
        retire_the_dead(); // this thread has left it for the other one
        remembered = {};
    }
    emm_context *context = find(id);
    if (!context && (status = make(*driver, cuda_context, id, context)) != EMM_OK) {
        return status;
    }
    status = serve(*context);
    if (status == EMM_OK) {
        remembered = {cuda_context, id, context};
        ret_context = context;
    }
    return status;
}

// What most calls find: the context that this thread has asked for before is current, and still
// the one it was. The state comes first, because a fork's child must not touch the driver.
bool is_still_current(emm_context *&ret_context) noexcept {
    const Remembered &last = remembered;
    if (!last.context ||
        (last.context->state.load(std::memory_order_acquire) & ~state_serving) != 0) {
        return false;
    }
    const driver::Driver &driver = last.context->driver;
    CUcontext cuda_context = nullptr;
    unsigned long long id = 0;
    if (driver.cuCtxGetCurrent(&cuda_context) != CUDA_SUCCESS ||
        cuda_context != last.cuda_context || driver.cuCtxGetId(cuda_context, &id) != CUDA_SUCCESS ||
        id != last.id) {
        return false;
    }
    ret_context = last.context;
    return true;
}

emm_status context_current(emm_context *&ret_context) {
    const driver::Driver *driver = nullptr;
    const emm_status status = driver::load(driver);
    if (status != EMM_OK) {
        return status;
    }
    CUcontext cuda_context = nullptr;
    const CUresult result = driver->cuCtxGetCurrent(&cuda_context);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED) {
        return driver::fail(result, "cuCtxGetCurrent");
    }
    if (!cuda_context) {
        return observe::fail(EMM_E_NO_CONTEXT, result,
                             "the calling thread has no current CUDA context; make one current, or "
                             "ask for a device's with emm_context_for_device");
    }
    return context_from(cuda_context, ret_context);
}

emm_status context_for_device(int32_t device, emm_context *&ret_context) {
    const driver::Driver *driver = nullptr;
    emm_status status = driver::initialize(driver);
    if (status != EMM_OK) {
        return status;
    }
    CUdevice handle = 0;
    int count = 0;
    CUresult result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && (device < 0 || device >= count)) {
        return observe::fail(EMM_E_INVALID_VALUE, 0,
                             "device: expected 0 to " + std::to_string(count - 1) + ", found " +
                                 std::to_string(device));
    }
    if (result != CUDA_SUCCESS || (result = driver->cuDeviceGet(&handle, device)) != CUDA_SUCCESS) {
        return driver::fail(result, "cuDeviceGet");
    }
    CUcontext primary = nullptr;
    result = driver->cuDevicePrimaryCtxRetain(&primary, handle);
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuDevicePrimaryCtxRetain");
    }
    try {
        status = context_from(primary, ret_context);
    } catch (...) {
        driver->cuDevicePrimaryCtxRelease(handle);
        throw;
    }
    // One reference for each record, however often it is asked for.
    if (status != EMM_OK || ret_context->retained.exchange(1) != 0) {
        driver->cuDevicePrimaryCtxRelease(handle);
    }
    return status;
}

emm_status retire(emm_context &context, const void *caller) {
    return watched(context, observe::EventType::retire, caller,
                   [&] { return retire_unwatched(context); });
}

emm_status reset(emm_context &context, const void *caller) {
    return watched(context, observe::EventType::reset, caller,
                   [&] { return reset_unwatched(context); });
}

emm_status shut_down(const void *caller) {
    if (const emm_status status = refuse_inside("retired"); status != EMM_OK) {
        return status;
    }
    observe::process_state.fetch_or(observe::process_shut_down, std::memory_order_acq_rel);
    for (emm_context *context = first_context(); context; context = context->next) {
        retire(*context, caller);
        context->state.fetch_or(state_shut_down, std::memory_order_release);
    }
    return EMM_OK;
}

} // namespace emm::core
