#include "core/record/context.h"

#include "api/check.h"
#include "core/lifecycle/lifecycle.h"
#include "core/memory/call.h"
#include "core/memory/recovery.h"
#include "core/tracking/tracking.h"
#include "core/tracking/watch.h"
#include "driver/copies.h"
#include "monitor/neighbours.h"
#include "monitor/server.h"
#include "observe/events/log_writer.h"
#include "sharing/exporter/exporter.h"
#include "sharing/importer/importer.h"

using namespace emm;

namespace {

void end_sharing(emm_context &context) noexcept {
    sharing::end_exports(context);
    sharing::withdraw_exports(context);
    sharing::close_imports(context);
}

constexpr core::Sharing sharing_for_core = {&end_sharing, &sharing::set_imports_access,
                                            &sharing::get_legacy_handle, &sharing::serve_export,
                                            &sharing::withdraw_export};

} // namespace

// Sets the functions that core calls in the layers above it. The linker brings this file along with
// the first context, also in a static libemm, and it runs before any code of the program.
[[gnu::constructor(101)]] static void set_hooks() {
    core::sharing = &sharing_for_core;
    core::on_serving = &monitor::announce;
    core::ask_neighbours = &monitor::ask_neighbours;
    driver::give_back_idle = &core::give_back_idle;
    driver::ask_own_group = &monitor::ask_own_group;
}

emm_status emm_context_current(emm_context **ret_context) {
    EMM_REFUSE_CHILD_UNLESS(ret_context);
    EMM_REQUIRE(ret_context);
    if (core::is_still_current(*ret_context)) {
        return EMM_OK;
    }
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::context_current(*ret_context); });
}

emm_status emm_context_from(CUctx_st *cuda_context, emm_context **ret_context) {
    EMM_ENTER(cuda_context, ret_context);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::context_from(cuda_context, *ret_context); });
}

emm_status emm_context_for_device(int32_t device, emm_context **ret_context) {
    EMM_ENTER(ret_context);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::context_for_device(device, *ret_context); });
}

emm_status emm_context_named(emm_context *context, const char *name, const char *options,
                             emm_context **ret_context) {
    EMM_ENTER(context, name, ret_context);
    EMM_TRY(core::admit_process());
    return api::guarded([&] { return core::context_named(*context, name, options, *ret_context); });
}

emm_status emm_context_get_info(emm_context *context, emm_context_info *ret_info) {
    EMM_ENTER(context);
    EMM_REQUIRE_SIZED(ret_info);
    const emm_context_info info = core::info_of(*context);
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

emm_status emm_context_retire(emm_context *context) {
    EMM_ENTER(context);
    const void *const caller = __builtin_return_address(0);
    return api::guarded([&] { return core::retire(*context, caller); });
}

emm_status emm_context_reset(emm_context *context) {
    EMM_ENTER(context);
    const void *const caller = __builtin_return_address(0);
    return api::guarded([&] { return core::reset(*context, caller); });
}

emm_status emm_context_pause(emm_context *context, uint32_t flags, size_t *ret_released) {
    EMM_ENTER(context);
    return api::guarded([&] { return core::pause(*context, flags, ret_released); });
}

emm_status emm_context_resume(emm_context *context, uint32_t flags) {
    EMM_ENTER(context);
    const void *const caller = __builtin_return_address(0);
    return api::guarded([&] { return core::resume(*context, flags, caller); });
}

emm_status emm_context_read_paused(emm_context *context, emm_deviceptr ptr, size_t size,
                                   void *host) {
    EMM_ENTER(context, host);
    return api::guarded([&] { return core::read_paused(*context, ptr, size, host); });
}

emm_status emm_context_set_option(emm_context *context, const char *key, const char *text) {
    EMM_ENTER(context, key);
    return api::guarded([&] { return core::set_option(*context, key, text); });
}

emm_status emm_foreach_context(emm_context_visitor visit, void *user_data) {
    EMM_ENTER(visit);
    for (emm_context *context = core::first_context(); context; context = context->next) {
        if ((context->state.load() & ~core::state_serving) == 0 && visit(context, user_data) != 0) {
            break;
        }
    }
    return EMM_OK;
}

emm_status emm_foreach_allocation(emm_context *context, emm_allocation_visitor visit,
                                  void *user_data) {
    EMM_ENTER(context, visit);
    return api::guarded([&] { return core::foreach_allocation(*context, visit, user_data); });
}

emm_status emm_track_driver_memory(int32_t device, uint64_t size, uint64_t *ret_id) {
    EMM_ENTER(ret_id);
    const void *const caller = __builtin_return_address(0);
    return api::guarded([&] { return core::track_driver_memory(device, size, caller, *ret_id); });
}

emm_status emm_untrack_driver_memory(uint64_t id) {
    EMM_REFUSE_CHILD();
    return core::untrack_driver_memory(id);
}

emm_status emm_shutdown(void) {
    EMM_REFUSE_CHILD();
    const emm_status status = core::admit_process();
    if (status == EMM_E_SHUT_DOWN) {
        return EMM_OK;
    }
    const void *const caller = __builtin_return_address(0);
    return status == EMM_OK ? api::guarded([&] { return core::shut_down(caller); }) : status;
}

emm_status emm_stream_register(emm_context *context, emm_stream stream) {
    EMM_ENTER(context);
    EMM_REQUIRE_STREAM(stream);
    return core::register_stream(*context, stream);
}

emm_status emm_stream_retire(emm_context *context, emm_stream stream) {
    EMM_ENTER(context);
    EMM_REQUIRE_STREAM(stream);
    return core::retire_stream(*context, stream);
}

emm_status emm_capture_begin(emm_context *context, emm_stream stream) {
    EMM_ENTER(context);
    EMM_REQUIRE_STREAM(stream);
    return core::begin_capture(*context, stream);
}

emm_status emm_capture_end(emm_context *context, emm_stream stream) {
    EMM_ENTER(context);
    EMM_REQUIRE_STREAM(stream);
    return core::end_capture(*context, stream);
}

emm_status emm_defer_cleanup_begin(emm_context *context) {
    EMM_ENTER(context);
    return core::begin_section(*context, __builtin_return_address(0));
}

emm_status emm_defer_cleanup_end(emm_context *context) {
    EMM_ENTER(context);
    return core::end_section(*context, __builtin_return_address(0));
}

emm_status emm_set_pressure_callback(emm_pressure_callback callback, void *user_data) {
    return emm_exchange_pressure_callback(callback, user_data, nullptr);
}

emm_status emm_exchange_pressure_callback(emm_pressure_callback callback, void *user_data,
                                          emm_pressure_callback_info *ret_previous) {
    EMM_COUNT_CALL();
    return api::guarded([&]() -> emm_status {
        const emm_pressure_callback_info previous =
            core::set_pressure_callback({callback, callback ? user_data : nullptr});
        if (ret_previous) {
            *ret_previous = previous;
        }
        return EMM_OK;
    });
}

emm_status emm_set_event_hook(emm_event_hook hook, void *user_data,
                              emm_event_hook_info *ret_previous) {
    EMM_COUNT_CALL();
    return api::guarded([&] { return core::set_event_hook(hook, user_data, ret_previous); });
}

emm_status emm_event_log_recover(const char *path) {
    EMM_COUNT_CALL();
    EMM_REQUIRE(path);
    return api::guarded([&] { return observe::recover_event_log(path); });
}

emm_status emm_get_counters(emm_counters *ret_counters) {
    EMM_REFUSE_CHILD();
    EMM_REQUIRE_SIZED(ret_counters);
    const core::Counters &counted = core::counters();
    auto counters = observe::sized<emm_counters>();
    counters.late_frees = counted.late_frees;
    counters.flushes = counted.flushes;
    counters.failed_deferred = counted.failed_deferred;
    counters.dropped = counted.dropped;
    counters.memory_retries = counted.memory_retries;
    for (emm_context *context = core::first_context(); context; context = context->next) {
        counters.pending_count += context->pending.count();
        counters.pending_bytes += context->pending.bytes();
    }
    emm_copy_sized(ret_counters, &counters);
    return EMM_OK;
}
