#include "core/handles/handle.h"
#include "core/lifecycle/lifecycle.h"
#include "core/memory/default_memory.h"
#include "core/memory/recovery.h"
#include "core/record/asleep.h"
#include "core/record/context.h"
#include "core/reports/exit_statistics.h"
#include "core/tracking/watch.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"

#include <optional>

namespace emm::core {
namespace {

// The calling thread has the manager_lock and has closed the epoch.
void give_up(emm_context &context) noexcept {
    destroy_manager(context); // after a failed try: what is left of the manager
    if (context.retained.exchange(0) != 0) {
        context.driver.cuDevicePrimaryCtxRelease(context.device);
    }
    context.given_up.store(true, std::memory_order_release);
    leave_group(context);
}

// Does not wait for locks, because their owner may be waiting for this thread.
emm_status try_to_give_up(emm_context &context) noexcept {
    const OwnerGuard guard(context.manager_lock, std::try_to_lock);
    const OwnerGuard announcing(context.group.announcing, std::try_to_lock);
    if (!guard.owns() || !announcing.owns()) {
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

emm_status retire_one(emm_context &context, const void *caller);

// Retires the named pools first: the manager_lock prevents new ones.
emm_status retire_unwatched(emm_context &context, const void *caller) {
    EMM_TRY(expect_outside("retired"));
    keep_statistics(context);
    const OwnerGuard guard(context.manager_lock);
    EMM_TRY(guard.expect_owned("a plugin must not retire the context that it serves"));
    if ((context.state.load(std::memory_order_acquire) & state_forked) != 0) {
        return admit(context);
    }
    finish_uses_of_portable(context);
    for_each_affected(context, [&](emm_context &pool) {
        if (&pool != &context && !pool.given_up.load(std::memory_order_acquire)) {
            retire_one(pool, caller);
        }
    });
    // The epoch closes first, so that no release assumes too early that the memory has been given
    // up.
    const Closed closed(context.epoch);
    context.state.fetch_or(state_retired, std::memory_order_acq_rel);
    give_up(context);
    return EMM_OK;
}

emm_status retire_one(emm_context &context, const void *caller) {
    return watched(context, observe::EventType::retire, caller,
                   [&] { return retire_unwatched(context, caller); });
}

// Whether this thread is inside a call to the plugin, or inside the application's pressure
// callback.
bool is_inside_call() noexcept {
    return this_thread.depth != 0 || is_in_pressure_callback() || this_thread.managing;
}

} // namespace

emm_status expect_outside(const char *what) {
    if (!is_inside_call()) {
        return EMM_OK;
    }
    return observe::fail(
        EMM_E_REENTERED, 0,
        "a context cannot be {} from inside a call of its plugin or of the pressure callback",
        what);
}

void retire_dead_contexts() {
    const observe::Preserved said;
    for (emm_context *context = first_context(); context; context = context->next) {
        if ((context->state.load(std::memory_order_acquire) & (state_retired | state_forked)) ==
            0) {
            has_died(*context);
        }
    }
    if (is_inside_call()) {
        return;
    }
    for (emm_context *context = first_context(); context; context = context->next) {
        if (is_left_behind(*context) && watched(*context, observe::EventType::retire, nullptr, [&] {
                                            return try_to_give_up(*context);
                                        }) == EMM_OK) {
            observe::log(EMM_LOG_INFO,
                         "{} died without emm_context_retire; emm has dropped its manager",
                         *context);
            finalize_dropped(*context);
        }
    }
}

emm_status retire(emm_context &context, const void *caller) {
    const emm_status status = retire_one(context, caller);
    if (context.is_named()) {
        finalize_dropped(context);
        return status;
    }
    // The pools have left the group's list.
    for (emm_context *each = first_context(); each; each = each->next) {
        if (&each->group == &context) {
            finalize_dropped(*each);
        }
    }
    return status;
}

emm_status shut_down(const void *caller) {
    EMM_TRY(expect_outside("retired"));
    observe::process_state.fetch_or(observe::process_shut_down, std::memory_order_acq_rel);
    for (emm_context *context = first_context(); context; context = context->next) {
        retire(*context, caller);
        context->state.fetch_or(state_shut_down, std::memory_order_release);
    }
    return EMM_OK;
}

namespace {

// The pool's lock is held.
emm_status reset_owned(emm_context &context) {
    if (is_unserved(context)) {
        // An earlier reset made no manager, so there is no memory to drop.
        return begin_serving(context);
    }
    EMM_TRY(admit_alive(context));
    const Closed closed(context.epoch);
    return reset_manager(context);
}

// Waits while the process is paused by emm pause, because a reset would end that pause.
emm_status reset_unwatched(emm_context &context) {
    EMM_TRY(expect_outside("reset"));
    for (;;) {
        wait_while_asleep();
        const OwnerGuard guard(context.manager_lock);
        EMM_TRY(guard.expect_owned("a plugin must not reset the context that it serves"));
        if (!must_wait_asleep()) {
            return reset_owned(context);
        }
    }
}

emm_status reset_one(emm_context &context, const void *caller) {
    const emm_status status = watched(context, observe::EventType::reset, caller,
                                      [&] { return reset_unwatched(context); });
    finalize_dropped(context);
    return status;
}

// Whether the program has received the pool, and the pool can still serve: it is not retired, not
// shut down, and its device is not lost.
bool is_to_be_reset(const emm_context &pool) noexcept {
    return pool.has_served && (pool.state.load(std::memory_order_acquire) & state_late) == 0;
}

} // namespace

emm_status reset(emm_context &context, const void *caller) {
    emm_status status = EMM_OK;
    for_each_affected(context, [&](emm_context &pool) {
        if (&pool != &context && !is_to_be_reset(pool)) {
            return;
        }
        std::optional<observe::Preserved> first_failure;
        if (status < EMM_OK) {
            first_failure.emplace();
        }
        const emm_status one = reset_one(pool, caller);
        status = status < EMM_OK ? status : one;
    });
    return status;
}

} // namespace emm::core
