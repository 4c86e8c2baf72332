#include "entries.h"

#include "bridge.h"

#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

namespace {

const emm_plugin *no_plugin(const emm_host *) {
    return nullptr;
}

size_t give_back(emm_context *, size_t, void *) {
    return 0;
}

emm_array bytes_at(emm_deviceptr data) {
    static const int64_t shape[] = {some_bytes};
    auto array = sized<emm_array>();
    array.version = 3;
    array.ndim = 1;
    array.shape = shape;
    array.typestr = "|u1";
    array.data = data;
    array.stream = EMM_ARRAY_NO_STREAM;
    return array;
}

bool is_forked(emm_status status) {
    return status == EMM_E_FORKED && emm_last_error()->code == EMM_E_FORKED;
}

// Outputs that calls must leave unchanged.
template <class Type> struct Untouched {
    Type value = {};
    const Type before = value;
    ~Untouched() = default;
    bool is_so() const { return std::memcmp(&value, &before, sizeof value) == 0; }
};

template <class Call> bool throws(Call call) {
    try {
        call();
    } catch (const std::runtime_error &) {
        return emm_last_error()->code == EMM_E_FORKED;
    }
    return false;
}

#define ENTRY(name, ...)                                                                           \
    {                                                                                              \
#name, [](const Things &things) {                                                          \
            (void)things;                                                                          \
            return is_forked(name(__VA_ARGS__));                                                   \
        }       \
    }

#define BLOCK(name, ...)                                                                           \
    {                                                                                              \
#name, [](const Things &things) {                                                          \
            (void)things;                                                                          \
            __VA_ARGS__                                                                            \
        }       \
    }

} // namespace

const std::vector<Entry> &entries() {
    static const std::vector<Entry> table = {
        {"emm_version", [](const Things &) { return emm_version()[0] != 0; }, "a constant"},
        {"emm_status_text", [](const Things &) { return emm_status_text(EMM_E_FORKED)[0] != 0; },
         "a constant"},
        {"emm_status_name", [](const Things &) { return emm_status_name(EMM_E_FORKED)[0] != 0; },
         "a constant"},
        {"emm_last_error", [](const Things &) { return emm_last_error()->text != nullptr; },
         "looks at its own thread alone, and is how a child learns why it is refused"},
        {"emm_array_validate",
         [](const Things &things) {
             const emm_array array = bytes_at(things.ptr);
             return emm_array_validate(&array) == EMM_OK;
         },
         "looks at its argument alone"},
        {"emm_array_get_layout",
         [](const Things &things) {
             const emm_array array = bytes_at(things.ptr);
             auto layout = sized<emm_array_layout>();
             return emm_array_get_layout(&array, &layout, nullptr) == EMM_OK;
         },
         "looks at its argument alone"},

        ENTRY(emm_set_plugin, "passthrough"),
        ENTRY(emm_set_plugin_entry, &no_plugin, nullptr),
        BLOCK(emm_get_plugin, auto info = sized<emm_plugin_info>();
              return is_forked(emm_get_plugin(&info));),
        BLOCK(emm_probe_plugin, auto info = sized<emm_plugin_info>();
              return is_forked(emm_probe_plugin("passthrough", &info));),
        BLOCK(emm_get_device_total, size_t total = 0;
              return is_forked(emm_get_device_total(0, &total)) && total == 0;),
        ENTRY(
            emm_foreach_plugin, [](const char *, const char *, void *) { return 1; }, nullptr),
        BLOCK(emm_get_driver, auto info = sized<emm_driver_info>();
              return is_forked(emm_get_driver(&info));),
        BLOCK(emm_driver_entry,
              return !emm_driver_entry("cuInit", 12000) && emm_last_error()->code == EMM_E_FORKED;),
        BLOCK(emm_get_driver_usage, auto usage = sized<emm_driver_usage>();
              return is_forked(emm_get_driver_usage(&usage));),
        BLOCK(emm_get_device_account, auto account = sized<emm_device_account>();
              return is_forked(emm_get_device_account(0, &account));),
        BLOCK(emm_take_driver_memory, auto memory = sized<emm_driver_memory>(); uint64_t id = 0;
              return is_forked(emm_take_driver_memory(&memory, &id)) && id == 0;),
        ENTRY(emm_keep_driver_memory, 1, nullptr),
        ENTRY(emm_give_driver_memory, 1),
        ENTRY(
            emm_foreach_driver_call, [](const char *, uint64_t, void *) {}, nullptr),
        ENTRY(
            emm_foreach_driver_count, [](const char *, uint64_t, void *) { return 1; }, nullptr),
        BLOCK(emm_context_current, emm_context *other = nullptr;
              return is_forked(emm_context_current(&other)) && !other;),
        BLOCK(emm_context_from, emm_context *other = nullptr;
              auto *const cuda = reinterpret_cast<CUctx_st *>(things.page);
              return is_forked(emm_context_from(cuda, &other)) && !other;),
        BLOCK(emm_context_for_device, emm_context *other = nullptr;
              return is_forked(emm_context_for_device(0, &other)) && !other;),
        BLOCK(emm_context_named, emm_context *other = nullptr;
              return is_forked(emm_context_named(things.context, "pool", nullptr, &other)) &&
                     !other;),
        BLOCK(emm_context_get_info, auto info = sized<emm_context_info>();
              return is_forked(emm_context_get_info(things.context, &info));),
        ENTRY(emm_context_retire, things.context),
        ENTRY(emm_context_reset, things.context),
        BLOCK(emm_context_pause, size_t released = 1;
              return is_forked(emm_context_pause(things.context, EMM_PAUSE_KEEP, &released)) &&
                     released == 1;),
        ENTRY(emm_context_resume, things.context, 0),
        BLOCK(emm_context_read_paused, char host[8] = {};
              return is_forked(emm_context_read_paused(things.context, things.ptr, 8, host));),
        ENTRY(emm_context_set_option, things.context, "max", "4MiB"),
        ENTRY(
            emm_foreach_context, [](emm_context *, void *) { return 1; }, nullptr),
        ENTRY(
            emm_foreach_allocation, things.context,
            [](const emm_allocation *, void *) { return 1; }, nullptr),
        BLOCK(emm_track_driver_memory, uint64_t id = 0;
              return is_forked(emm_track_driver_memory(0, some_bytes, &id)) && id == 0;),
        ENTRY(emm_untrack_driver_memory, 1),
        ENTRY(emm_shutdown),

        BLOCK(emm_memalloc, emm_deviceptr ptr = 0;
              return is_forked(emm_memalloc(things.context, 64, EMM_STREAM_LEGACY, &ptr)) &&
                     is_forked(emm_memalloc(things.context, 0, EMM_STREAM_LEGACY, &ptr)) &&
                     ptr == 0;),
        BLOCK(emm_memfree, return is_forked(emm_memfree(things.context, things.ptr, some_bytes,
                                                        EMM_STREAM_LEGACY)) &&
                                  is_forked(emm_memfree(things.context, 0, 0, EMM_STREAM_LEGACY));),
        BLOCK(emm_memhostalloc, void *host = nullptr;
              return is_forked(emm_memhostalloc(things.context, 64, 0, &host, nullptr)) &&
                     is_forked(emm_memhostalloc(things.context, 0, 0, &host, nullptr)) && !host;),
        BLOCK(emm_memhostfree,
              return is_forked(emm_memhostfree(things.context, things.host, some_bytes, 0,
                                               EMM_STREAM_UNORDERED)) &&
                     is_forked(emm_memhostfree(things.context, nullptr, 0, 0, nullptr));),
        ENTRY(emm_mempin, things.context, things.page, 4096, 0, nullptr),
        ENTRY(emm_memunpin, things.context, things.page, 4096),
        BLOCK(emm_memallocmanaged, emm_deviceptr ptr = 0;
              return is_forked(emm_memallocmanaged(things.context, 64, EMM_ATTACH_GLOBAL, &ptr)) &&
                     ptr == 0;),
        ENTRY(emm_memfreemanaged, things.context, things.ptr, some_bytes, EMM_STREAM_UNORDERED),
        BLOCK(emm_get_memory_info, size_t bytes[2] = {};
              return is_forked(emm_get_memory_info(things.context, &bytes[0], &bytes[1]));),
        BLOCK(emm_get_stats, auto stats = sized<emm_stats>();
              return is_forked(emm_get_stats(things.context, &stats));),
        ENTRY(emm_context_reset_peaks, things.context),
        ENTRY(emm_tag_begin, "tag"),
        ENTRY(emm_tag_end),
        ENTRY(emm_trim, things.context, 0, nullptr),
        BLOCK(emm_query, auto info = sized<emm_block_info>();
              return is_forked(emm_query(things.context, things.ptr, &info));),
        ENTRY(emm_record_use, things.context, things.ptr, some_bytes, EMM_STREAM_LEGACY),
        ENTRY(emm_set_peer_access, things.context, 1, EMM_ACCESS_READ),

        BLOCK(emm_memory_alloc, emm_memory *made = nullptr;
              return is_forked(emm_memory_alloc(things.context, 64, nullptr, &made)) && !made;),
        BLOCK(emm_memory_hostalloc, emm_memory *made = nullptr;
              return is_forked(emm_memory_hostalloc(things.context, 64, 0, &made)) && !made;),
        BLOCK(emm_memory_managed, emm_memory *made = nullptr;
              return is_forked(emm_memory_managed(things.context, 64, EMM_ATTACH_GLOBAL, &made)) &&
                     !made;),
        BLOCK(emm_memory_pin, emm_memory *made = nullptr;
              return is_forked(emm_memory_pin(things.context, things.page, 4096, 0, nullptr,
                                              nullptr, &made)) &&
                     !made;),
        BLOCK(emm_memory_wrap, emm_memory *made = nullptr;
              return is_forked(emm_memory_wrap(things.context, 0, things.page, 4096, nullptr,
                                               nullptr, &made)) &&
                     !made;),
        BLOCK(emm_memory_view, emm_memory *made = nullptr;
              return is_forked(emm_memory_view(things.memory, 0, 64, &made)) && !made;),
        ENTRY(emm_memory_retain, things.memory),
        BLOCK(emm_memory_release, return is_forked(emm_memory_release(things.memory)) &&
                                         is_forked(emm_memory_release(things.view));),
        ENTRY(emm_memory_free, things.memory),
        ENTRY(emm_memory_set_stream, things.memory, EMM_STREAM_LEGACY),
        BLOCK(emm_memory_get_info, auto info = sized<emm_memory_info>();
              return is_forked(emm_memory_get_info(things.memory, &info));),
        BLOCK(emm_memory_export, Untouched<emm_ipc_handle> handle;
              return is_forked(emm_memory_export(things.memory, &handle.value)) && handle.is_so();),
        BLOCK(emm_memory_open_ipc, emm_memory *made = nullptr;
              return is_forked(emm_memory_open_ipc(things.context, &things.handle, &made)) &&
                     !made;),
        BLOCK(emm_get_ipc_handle, Untouched<emm_ipc_handle> handle;
              return is_forked(emm_get_ipc_handle(things.context, things.ptr, some_bytes,
                                                  &handle.value)) &&
                     handle.is_so();),
        ENTRY(emm_release_ipc_handle, things.context, &things.handle),
        {"emm_ipc_is_name", [](const Things &) { return emm_ipc_is_name("emm-ipc") == 1; },
         "looks at its argument alone"},
        BLOCK(emm_ipc_handle_to_name, Untouched<emm_ipc_name> name;
              return is_forked(emm_ipc_handle_to_name(&things.handle, &name.value)) &&
                     name.is_so();),
        BLOCK(emm_ipc_name_to_handle, Untouched<emm_ipc_handle> handle;
              const emm_ipc_name name = {};
              return is_forked(emm_ipc_name_to_handle(&name, &handle.value)) && handle.is_so();),
        BLOCK(emm_ipc_name_of, Untouched<emm_ipc_name> name;
              return is_forked(emm_ipc_name_of(&things.handle, &name.value)) && name.is_so();),
        BLOCK(emm_ipc_handle_from, Untouched<emm_ipc_handle> handle; const emm_ipc_name name = {};
              return is_forked(emm_ipc_handle_from(&name, &handle.value)) && handle.is_so();),

        ENTRY(emm_stream_register, things.context, EMM_STREAM_LEGACY),
        ENTRY(emm_stream_retire, things.context, EMM_STREAM_LEGACY),
        ENTRY(emm_capture_begin, things.context, EMM_STREAM_LEGACY),
        ENTRY(emm_capture_end, things.context, EMM_STREAM_LEGACY),
        ENTRY(emm_defer_cleanup_begin, things.context),
        ENTRY(emm_defer_cleanup_end, things.context),
        ENTRY(emm_set_log_callback, EMM_LOG_OFF, nullptr, nullptr),
        ENTRY(emm_set_log_level, EMM_LOG_WARN),
        ENTRY(emm_set_pressure_callback, &give_back, nullptr),
        BLOCK(emm_exchange_log_callback, emm_log_callback_info previous = {}; return is_forked(
                  emm_exchange_log_callback(EMM_LOG_OFF, nullptr, nullptr, &previous));),
        ENTRY(emm_exchange_log_level, EMM_LOG_WARN, nullptr),
        ENTRY(emm_exchange_pressure_callback, &give_back, nullptr, nullptr),
        ENTRY(emm_set_event_hook, nullptr, nullptr, nullptr),
        ENTRY(emm_event_log_recover, "/tmp/there is no such log.csv"),
        ENTRY(emm_log, EMM_LOG_DEBUG, "a line"),
        BLOCK(emm_get_counters, auto counters = sized<emm_counters>();
              return is_forked(emm_get_counters(&counters));),

        BLOCK(emm_array_import, const emm_array array = bytes_at(things.ptr);
              emm_memory *made = nullptr;
              return is_forked(emm_array_import(things.context, &array, nullptr, 0, nullptr,
                                                nullptr, &made, nullptr)) &&
                     !made;),
        BLOCK(emm_array_export, emm_array array = bytes_at(0);
              return is_forked(emm_array_export(things.memory, 0, nullptr, &array));),
        BLOCK(emm_dlpack_export, const emm_array array = bytes_at(0);
              DLManagedTensorVersioned *tensor = nullptr;
              return is_forked(emm_dlpack_export(things.memory, 0, &array, nullptr, &tensor)) &&
                     !tensor;),
        BLOCK(emm_dlpack_export_unversioned, const emm_array array = bytes_at(0);
              DLManagedTensor *tensor = nullptr;
              return is_forked(emm_dlpack_export_unversioned(things.memory, 0, &array, nullptr,
                                                             &tensor)) &&
                     !tensor;),
    };
    return table;
}

// An entry that allocates is refused in its own way; an entry that frees does nothing, and says
// nothing.
const std::vector<Entry> &bridge_entries() {
    static int state;
    static const auto thread = []() -> void * { return &state; };
    static const PythonFunctions interpreter = {[](void *) -> const char * { return nullptr; },
                                                nullptr,
                                                [](void **, void **, void **) {},
                                                [](void *, void *, void *) {},
                                                thread,
                                                thread,
                                                []() -> void * { return nullptr; },
                                                [](void *) {}};
    static const std::vector<Entry> table = {
        BLOCK(emm_torch_malloc, return throws([] { emm_torch_malloc(64, 0, EMM_STREAM_LEGACY); });),
        BLOCK(emm_torch_free, emm_torch_free(reinterpret_cast<void *>(uintptr_t(things.ptr)),
                                             some_bytes, 0, EMM_STREAM_LEGACY);
              return true;),
        BLOCK(emm_torch_record_stream, return throws([&] {
                  emm_torch_record_stream(reinterpret_cast<void *>(uintptr_t(things.ptr)),
                                          EMM_STREAM_LEGACY);
              });),
        BLOCK(emm_torch_begin_allocate_to_pool, return throws([] {
                  emm_torch_begin_allocate_to_pool(0, {0, 1}, [](emm_stream) { return true; });
              });),
        BLOCK(emm_torch_end_allocate_to_pool, emm_torch_end_allocate_to_pool(0, {0, 1});
              return true;),
        BLOCK(emm_torch_pool, TorchMalloc malloc = nullptr; TorchFree free = nullptr;
              return emm_torch_pool("pool", nullptr, &malloc, &free) == EMM_OK &&
                     throws([&] { malloc(64, 0, EMM_STREAM_LEGACY); });),
        BLOCK(emm_torch_empty_cache, emm_torch_empty_cache(); return true;),
        BLOCK(emm_cupy_malloc,
              return !emm_cupy_malloc(reinterpret_cast<void *>(EMM_CUPY_TESTED), 64, 0) &&
                     emm_last_error()->code == EMM_E_FORKED;),
        BLOCK(emm_cupy_free,
              emm_cupy_free(nullptr, reinterpret_cast<void *>(uintptr_t(things.ptr)), 0);
              return true;),
        BLOCK(emm_cupy_set_current_stream, emm_cupy_set_current_stream(nullptr); return true;),
        BLOCK(emm_numpy_handler,
              return !emm_numpy_handler(0) && emm_last_error()->code == EMM_E_FORKED;),
        {"emm_python_set_functions",
         [](const Things &) {
             emm_python_set_functions(&interpreter);
             return true;
         },
         "keeps what it is given"},
        {"emm_dlpack_end_capsule",
         [](const Things &) {
             emm_python_set_functions(&interpreter);
             emm_dlpack_end_capsule(nullptr);
             return true;
         },
         "a tensor that was taken has its own deleter"},
        {"emm_numpy_capsule_name", [](const Things &) { return emm_numpy_capsule_name()[0] != 0; },
         "a constant"},
        BLOCK(emm_rmm_serve, uintptr_t resource[4] = {};
              return is_forked(emm_rmm_serve(resource, things.context, nullptr, 26, 10));),
        BLOCK(emm_rmm_serve_pinned, uintptr_t resource[4] = {};
              return is_forked(emm_rmm_serve_pinned(resource, things.context, nullptr, 26, 10));),
    };
    return table;
}

std::vector<std::string> differences(const std::vector<Entry> &table, const char *list) {
    std::ifstream file(list);
    std::set<std::string> missing;
    for (std::string name; std::getline(file, name);) {
        missing.insert(name);
    }
    std::vector<std::string> found;
    for (const Entry &entry : table) {
        if (missing.erase(entry.name) == 0) {
            found.push_back(std::string(entry.name) + " is not exported");
        }
    }
    for (const std::string &name : missing) {
        found.push_back(name + " is exported, and not known here: say what it does in a child");
    }
    return found;
}
