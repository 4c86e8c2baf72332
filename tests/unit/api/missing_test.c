/* Behaviour: a call that lacks an argument is refused before anything else, and names the argument.
 */
#include "check.h"
#include "gpu.h"

#define REFUSES(call, words) CHECK_REFUSED(call, EMM_E_INVALID_VALUE, words)

static emm_deviceptr ptr = 0;
static emm_memory *memory = NULL;
static size_t bytes = 0;
static void *host = &bytes;

static void contexts(void) {
    REFUSES(emm_context_current(NULL), "emm_context_current: ret_context is NULL");
    REFUSES(emm_context_from(NULL, NULL), "emm_context_from: cuda_context is NULL");
    REFUSES(emm_context_for_device(0, NULL), "emm_context_for_device: ret_context is NULL");
    REFUSES(emm_context_named(NULL, "a", "", NULL), "emm_context_named: context is NULL");
    REFUSES(emm_context_get_info(NULL, NULL), "emm_context_get_info: context is NULL");
    REFUSES(emm_context_retire(NULL), "emm_context_retire: context is NULL");
    REFUSES(emm_context_reset(NULL), "emm_context_reset: context is NULL");
    REFUSES(emm_context_pause(NULL, 0, NULL), "emm_context_pause: context is NULL");
    REFUSES(emm_context_resume(NULL, 0), "emm_context_resume: context is NULL");
    REFUSES(emm_context_read_paused(NULL, 1, 1, host), "emm_context_read_paused: context is NULL");
    REFUSES(emm_context_set_option(NULL, "a", NULL), "emm_context_set_option: context is NULL");
    REFUSES(emm_context_reset_peaks(NULL), "emm_context_reset_peaks: context is NULL");
    REFUSES(emm_stream_register(NULL, EMM_STREAM_LEGACY), "emm_stream_register: context is NULL");
    REFUSES(emm_stream_retire(NULL, EMM_STREAM_LEGACY), "emm_stream_retire: context is NULL");
    REFUSES(emm_capture_begin(NULL, EMM_STREAM_LEGACY), "emm_capture_begin: context is NULL");
    REFUSES(emm_capture_end(NULL, EMM_STREAM_LEGACY), "emm_capture_end: context is NULL");
    REFUSES(emm_defer_cleanup_begin(NULL), "emm_defer_cleanup_begin: context is NULL");
    REFUSES(emm_defer_cleanup_end(NULL), "emm_defer_cleanup_end: context is NULL");
    REFUSES(emm_trim(NULL, 0, NULL), "emm_trim: context is NULL");
    REFUSES(emm_set_peer_access(NULL, 1, 0), "emm_set_peer_access: context is NULL");
}

static void blocks(void) {
    REFUSES(emm_memalloc(NULL, 1, EMM_STREAM_LEGACY, &ptr), "emm_memalloc: context is NULL");
    REFUSES(emm_memfree(NULL, 1, 1, EMM_STREAM_LEGACY), "emm_memfree: context is NULL");
    REFUSES(emm_memhostalloc(NULL, 1, 0, &host, NULL), "emm_memhostalloc: context is NULL");
    REFUSES(emm_memhostfree(NULL, host, 1, 0, EMM_STREAM_LEGACY),
            "emm_memhostfree: context is NULL");
    REFUSES(emm_mempin(NULL, host, 1, 0, NULL), "emm_mempin: context is NULL");
    REFUSES(emm_memunpin(NULL, host, 1), "emm_memunpin: context is NULL");
    REFUSES(emm_memallocmanaged(NULL, 1, EMM_ATTACH_GLOBAL, &ptr),
            "emm_memallocmanaged: context is NULL");
    REFUSES(emm_memfreemanaged(NULL, 1, 1, EMM_STREAM_LEGACY),
            "emm_memfreemanaged: context is NULL");
    REFUSES(emm_get_memory_info(NULL, &bytes, &bytes), "emm_get_memory_info: context is NULL");
    REFUSES(emm_get_stats(NULL, NULL), "emm_get_stats: context is NULL");
    REFUSES(emm_query(NULL, 1, NULL), "emm_query: context is NULL");
    REFUSES(emm_record_use(NULL, 1, 1, EMM_STREAM_LEGACY), "emm_record_use: context is NULL");
    REFUSES(emm_get_ipc_handle(NULL, 1, 1, NULL), "emm_get_ipc_handle: context is NULL");
    REFUSES(emm_release_ipc_handle(NULL, NULL), "emm_release_ipc_handle: context is NULL");
}

static void handles(void) {
    emm_array array;
    memset(&array, 0, sizeof array);
    REFUSES(emm_memory_alloc(NULL, 1, EMM_STREAM_LEGACY, &memory), "emm_memory_alloc: context");
    REFUSES(emm_memory_hostalloc(NULL, 1, 0, &memory), "emm_memory_hostalloc: context is NULL");
    REFUSES(emm_memory_pin(NULL, host, 1, 0, NULL, NULL, &memory), "emm_memory_pin: context is");
    REFUSES(emm_memory_managed(NULL, 1, EMM_ATTACH_GLOBAL, &memory), "emm_memory_managed: context");
    REFUSES(emm_memory_wrap(NULL, 1, NULL, 1, NULL, NULL, &memory), "emm_memory_wrap: context is");
    REFUSES(emm_memory_view(NULL, 0, 1, &memory), "emm_memory_view: memory is NULL");
    REFUSES(emm_memory_retain(NULL), "emm_memory_retain: memory is NULL");
    REFUSES(emm_memory_free(NULL), "emm_memory_free: memory is NULL");
    REFUSES(emm_memory_set_stream(NULL, EMM_STREAM_LEGACY),
            "emm_memory_set_stream: memory is NULL");
    REFUSES(emm_memory_get_info(NULL, NULL), "emm_memory_get_info: memory is NULL");
    REFUSES(emm_memory_export(NULL, NULL), "emm_memory_export: memory is NULL");
    REFUSES(emm_memory_open_ipc(NULL, NULL, &memory), "emm_memory_open_ipc: context is NULL");
    REFUSES(emm_array_import(NULL, &array, EMM_STREAM_LEGACY, 0, NULL, NULL, &memory, NULL),
            "emm_array_import: context is NULL");
    REFUSES(emm_array_export(NULL, 0, EMM_STREAM_LEGACY, &array), "emm_array_export: memory is");
    REFUSES(emm_array_get_layout(NULL, NULL, NULL), "emm_array_get_layout: array is NULL");
    REFUSES(emm_dlpack_export(NULL, 0, &array, NULL, NULL), "emm_dlpack_export: memory is NULL");
    REFUSES(emm_dlpack_export_unversioned(NULL, 0, &array, NULL, NULL),
            "emm_dlpack_export_unversioned: memory is NULL");
    CHECK(memory == NULL);
    CHECK(emm_memory_release(NULL) == EMM_OK);
}

static void process_wide(void) {
    uint64_t id = 0;
    REFUSES(emm_foreach_context(NULL, NULL), "emm_foreach_context: visit is NULL");
    REFUSES(emm_foreach_allocation(NULL, NULL, NULL), "emm_foreach_allocation: context is NULL");
    REFUSES(emm_foreach_driver_count(NULL, NULL), "emm_foreach_driver_count: visit is NULL");
    REFUSES(emm_foreach_driver_call(NULL, NULL), "emm_foreach_driver_call: visit is NULL");
    REFUSES(emm_foreach_plugin(NULL, NULL), "emm_foreach_plugin: visit is NULL");
    REFUSES(emm_track_driver_memory(0, 1, NULL), "emm_track_driver_memory: ret_id is NULL");
    REFUSES(emm_take_driver_memory(NULL, &id), "emm_take_driver_memory: memory is NULL");
    REFUSES(emm_get_device_account(0, NULL), "emm_get_device_account: ret_account is NULL");
    REFUSES(emm_get_device_total(0, NULL), "emm_get_device_total: ret_total is NULL");
    REFUSES(emm_get_driver_usage(NULL), "emm_get_driver_usage: ret_usage is NULL");
    REFUSES(emm_get_counters(NULL), "emm_get_counters: ret_counters is NULL");
    REFUSES(emm_get_driver(NULL), "emm_get_driver: ret_info is NULL");
    REFUSES(emm_get_plugin(NULL), "emm_get_plugin: ret_info is NULL");
    REFUSES(emm_probe_plugin(NULL, NULL), "emm_probe_plugin: spec is NULL");
    REFUSES(emm_probe_plugin("passthrough", NULL), "emm_probe_plugin: ret_info is NULL");
    REFUSES(emm_set_plugin(NULL), "emm_set_plugin: spec is NULL");
    REFUSES(emm_set_plugin_entry(NULL, ""), "emm_set_plugin_entry: entry is NULL");
    REFUSES(emm_event_log_recover(NULL), "emm_event_log_recover: path is NULL");
    REFUSES(emm_ipc_handle_to_name(NULL, NULL), "emm_ipc_handle_to_name: handle is NULL");
    REFUSES(emm_ipc_name_to_handle(NULL, NULL), "emm_ipc_name_to_handle: name is NULL");
    REFUSES(emm_tag_begin(NULL), "emm_tag_begin: name is NULL");
    REFUSES(emm_log(EMM_LOG_INFO, NULL), "emm_log: text is NULL");
}

const test missing_tests[] = {
    {"a call for a context that is missing is refused, and the argument is named", contexts},
    {"a call for a block whose context is missing is refused, and the argument is named", blocks},
    {"a call for a handle that is missing is refused, and makes none", handles},
    {"a call of the process that lacks an argument is refused, and it is named", process_wide},
    {NULL, NULL}};
