#include "core/lifecycle/lifecycle.h"
#include "core/record/context.h"
#include "core/reports/exit_statistics.h"
#include "core/tracking/watch.h"
#include "loader/loader.h"
#include "observe/error.h"
#include "observe/events/record.h"
#include "observe/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace emm::core {
namespace {

struct Registry {
    std::mutex mutex;
    std::map<uint64_t, emm_context *> by_id; // a green context's id leads to its primary's record
};

constexpr auto &registry = observe::immortal<Registry>;

// The last context that this thread has asked for; the id tells whether the handle still means the
// same context.
struct Remembered {
    CUcontext cuda_context = nullptr;
    uint64_t id = 0;
    emm_context *context = nullptr;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Remembered remembered;

// If `cuda_context` is a green context, finds its device's primary context. The driver is asked
// once in a context's life.
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
    CUstreamCaptureStatus unused = CU_STREAM_CAPTURE_STATUS_NONE;
    result = result == CUDA_SUCCESS ? driver.cuStreamIsCapturing(nullptr, &unused) : result;
    // cuStreamGetCtx would invalidate the capture of a stream that synchronizes with NULL. In a
    // green context NULL has no such stream.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return EMM_OK;
    }
    result = result == CUDA_SUCCESS ? driver.get_stream_context(nullptr, &owner, &green) : result;
    EMM_TRY(driver::check(result, "cuStreamGetCtx"));
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

// If several threads make a record of the same context, the first record entered stays.
emm_status enter(std::unique_ptr<emm_context> made, emm_context *&ret_context) {
    std::lock_guard lock(registry().mutex);
    const auto [place, is_new] = registry().by_id.try_emplace(made->id, made.get());
    ret_context = place->second;
    if (is_new) {
        add_context(*made.release());
    }
    return EMM_OK;
}

emm_status id_of(const driver::Driver &driver, CUcontext cuda_context, uint64_t *ret_id) {
    unsigned long long id = 0;
    const CUresult result = driver.cuCtxGetId(cuda_context, &id);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return observe::fail(EMM_E_RETIRED, result, "the CUDA context has been destroyed");
    }
    EMM_TRY(driver::check(result, "cuCtxGetId"));
    *ret_id = id;
    return EMM_OK;
}

// The record for a context that is not known yet.
emm_status make(const driver::Driver &driver, CUcontext cuda_context, uint64_t id,
                emm_context *&ret_context) {
    // The driver as the program initialized it; the bounds are read with it.
    const driver::Driver *initialized = nullptr;
    EMM_TRY(driver::initialize(initialized));
    // the driver may reuse the addresses of a dead context for this one
    retire_dead_contexts();
    CUcontext owner = nullptr;
    EMM_TRY(resolve_green(driver, cuda_context, id, &owner));
    if (owner != cuda_context) {
        EMM_TRY(context_from(owner, ret_context));
        std::lock_guard lock(registry().mutex);
        registry().by_id.try_emplace(id, ret_context);
        return EMM_OK;
    }
    auto made = std::make_unique<emm_context>(driver, cuda_context, id, deferred_limits());
    EMM_TRY(identify(*made));
    return enter(std::move(made), ret_context);
}

emm_status refuse_reentry(const emm_context &context) {
    return observe::fail(EMM_E_REENTERED, 0,
                         "a plugin must not ask for a context ({}) while creating, resetting or "
                         "destroying a manager",
                         context);
}

constexpr size_t longest_name = observe::longest_pool_name;
constexpr char numbered = '#'; // at the end of a name: a new pool

bool asks_for_a_new_pool(std::string_view name) {
    return !name.empty() && name.back() == numbered;
}

emm_status check_name(std::string_view whole) {
    const std::string_view name = whole.substr(0, whole.size() - asks_for_a_new_pool(whole));
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
    };
    const size_t room = longest_name - 2 * asks_for_a_new_pool(whole); // for '#' and a digit
    if (!name.empty() && name.size() <= room && std::all_of(name.begin(), name.end(), is_plain)) {
        return EMM_OK;
    }
    return observe::refuse("a pool's name: expected 1 to {} letters, digits, '-', '_' and '.', "
                           "with '#' behind them for a new pool; found '{}'",
                           longest_name, whole);
}

bool is_over(const emm_context &pool) {
    return (pool.state.load(std::memory_order_acquire) & state_retired) != 0;
}

emm_context *find_pool(const emm_context &group, std::string_view name) {
    emm_context *found = nullptr;
    for_each_pool(group, [&](emm_context &pool) {
        found = !is_over(pool) && pool.pool == name ? &pool : found;
    });
    return found;
}

// The first of torch#1, torch#2 and so on for "torch#" that is no pool yet.
emm_status next_name(const emm_context &group, std::string_view prefix, std::string &ret_name) {
    std::vector<size_t> taken;
    for_each_pool(group, [&](const emm_context &pool) {
        if (!is_over(pool) && pool.has_served && pool.pool.starts_with(prefix)) {
            taken.push_back(std::stoull(pool.pool.substr(prefix.size())));
        }
    });
    std::sort(taken.begin(), taken.end());
    size_t number = 1;
    for (const size_t each : taken) {
        number += each == number ? 1 : 0;
    }
    ret_name = std::string(prefix) + std::to_string(number);
    return ret_name.size() <= longest_name
               ? EMM_OK
               : observe::refuse("a pool's name: '{}' has more than {} characters", ret_name,
                                 longest_name);
}

// Enters the pool in the list of records, not served yet.
emm_context &enter_pool(emm_context &group, const char *name) {
    auto made = std::make_unique<emm_context>(group, name, deferred_limits());
    const std::lock_guard lock(registry().mutex);
    add_context(*made);
    return *made.release();
}

// Finds or makes the pool with the plugin's options `selection`.
emm_status serve_pool(emm_context &group, const char *name, const loader::Selection &selection,
                      emm_context *&ret_context) {
    if (this_thread.managing) {
        return refuse_reentry(group);
    }
    const OwnerGuard guard(group.manager_lock);
    if (!guard.owns()) {
        return refuse_reentry(group);
    }
    EMM_TRY(admit(group));
    std::string whole = name;
    if (asks_for_a_new_pool(name)) {
        EMM_TRY(next_name(group, name, whole));
    }
    emm_context *const found = find_pool(group, whole);
    emm_context &pool = found ? *found : enter_pool(group, whole.c_str());
    const OwnerGuard pool_guard(pool.manager_lock);
    if (is_unserved(pool)) {
        pool.selection = pool.has_served ? pool.selection : &selection;
        EMM_TRY(begin_serving(pool));
    }
    ret_context = &pool;
    return admit(pool);
}

emm_status refuse_options(const emm_context &pool, const loader::Selection &wanted) {
    const emm_option &option = *loader::find_difference(*pool.selection, wanted);
    const auto value = [&](const loader::Selection &selection) {
        const auto index = static_cast<size_t>(&option - pool.selection->plugin->options.data());
        const char *const text = selection.option_texts[index];
        return text ? fmt::format("'{}'", text) : std::string("no value");
    };
    return observe::refuse("{} was made with other options: expected {} for '{}', found {}", pool,
                           value(*pool.selection), option.name, value(wanted));
}

// Lets one thread make the manager; the others wait for it and then find it made.
emm_status serve(emm_context &context) {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    if ((state & (state_unserved | state_managing)) == 0) {
        return admit(context);
    }
    // This thread is inside a call to a plugin. If it waited for another context's manager, and the
    // thread that makes that manager waited for this context, both would wait for ever.
    if (this_thread.managing) {
        return refuse_reentry(context);
    }
    const OwnerGuard guard(context.manager_lock);
    if (!guard.owns()) {
        return refuse_reentry(context);
    }
    return is_unserved(context) ? begin_serving(context) : admit(context);
}

} // namespace

void leave_group(emm_context &pool) noexcept {
    const std::lock_guard lock(registry().mutex);
    remove_pool(pool);
}

bool is_unserved(const emm_context &context) noexcept {
    return (context.state.load(std::memory_order_acquire) & ~state_serving) == state_unserved;
}

emm_status begin_serving(emm_context &context) {
    // Held until the new pool has all announcements.
    const OwnerGuard announcing(context.group.announcing);
    EMM_TRY(make_manager(context));
    context.has_served = true;
    if ((context.selection->plugin->table.capabilities & EMM_PLUGIN_NEEDS_CURRENT) != 0) {
        context.state.fetch_or(state_needs_current, std::memory_order_relaxed);
    }
    report_statistics_at_exit();
    watch_if_wanted(context);
    context.state.fetch_and(~state_unserved, std::memory_order_release);
    if (on_serving) {
        on_serving(*context.selection->plugin);
    }
    return admit(context);
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
    EMM_TRY(driver::load(driver));
    EMM_TRY(id_of(*driver, cuda_context, &id));
    if (remembered.id == id && remembered.cuda_context == cuda_context) {
        const uint32_t state = remembered.context->state.load(std::memory_order_acquire);
        if ((state & ~state_serving) == 0) {
            ret_context = remembered.context;
            return EMM_OK;
        }
    }
    if (remembered.context && remembered.id != id &&
        !remembered.context->given_up.load(std::memory_order_acquire) &&
        has_died(*remembered.context)) {
        retire_dead_contexts(); // this thread's last context has died
        remembered = {};
    }
    emm_context *context = find(id);
    if (!context) {
        EMM_TRY(make(*driver, cuda_context, id, context));
    }
    EMM_TRY(serve(*context));
    remembered = {cuda_context, id, context};
    ret_context = context;
    return EMM_OK;
}

// The common case: the context that this thread asked for last is still current and has not been
// replaced. The state comes first, because a fork's child must not touch the driver.
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
    EMM_TRY(driver::load(driver));
    CUcontext cuda_context = nullptr;
    const CUresult result = driver->cuCtxGetCurrent(&cuda_context);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED) {
        return driver::fail(result, "cuCtxGetCurrent");
    }
    if (!cuda_context) {
        return observe::fail(EMM_E_NO_CONTEXT, result,
                             "the calling thread has no current CUDA context; make one current, or "
                             "use emm_context_for_device");
    }
    return context_from(cuda_context, ret_context);
}

emm_status context_for_device(int32_t device, emm_context *&ret_context) {
    const driver::Driver *driver = nullptr;
    EMM_TRY(driver::initialize(driver));
    CUdevice handle = 0;
    EMM_TRY(driver::find_device(*driver, device, &handle));
    CUcontext primary = nullptr;
    emm_status status = EMM_OK;
    EMM_TRY(EMM_DRIVER_CALL(*driver, cuDevicePrimaryCtxRetain, &primary, handle));
    try {
        status = context_from(primary, ret_context);
    } catch (...) {
        driver->cuDevicePrimaryCtxRelease(handle);
        throw;
    }
    // Each record holds one reference, however often it is asked for.
    if (status != EMM_OK || ret_context->retained.exchange(1) != 0) {
        driver->cuDevicePrimaryCtxRelease(handle);
    }
    return status;
}

emm_status context_named(emm_context &context, const char *name, const char *options,
                         emm_context *&ret_context) {
    EMM_TRY(check_name(name));
    EMM_TRY(admit(context));
    emm_context &group = context.group;
    EMM_TRY(admit_alive(group));
    const loader::Selection *wanted = group.selection;
    if (options) {
        EMM_TRY(select_options(*group.selection, options, wanted));
    }
    emm_context *pool = find_pool(group, name);
    if (!pool || !is_served(*pool)) {
        EMM_TRY(serve_pool(group, name, *wanted, pool));
    }
    if (options && pool->selection != wanted) {
        return refuse_options(*pool, *wanted);
    }
    ret_context = pool;
    return EMM_OK;
}

} // namespace emm::core
