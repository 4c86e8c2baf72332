#include "bridge.h"
#include "children.h"

#include <cstdlib>
#include <emm/plugin.h>

namespace forked {

void make_things() {
    require(emm_context_for_device(0, &things.context) == EMM_OK, "a context");
    require(emm_memalloc(things.context, some_bytes, EMM_STREAM_LEGACY, &things.ptr) >= EMM_OK,
            "memalloc");
    require(emm_memhostalloc(things.context, some_bytes, 0, &things.host, nullptr) >= EMM_OK,
            "memhostalloc");
    require(emm_memory_alloc(things.context, some_bytes, EMM_STREAM_LEGACY, &things.memory) >=
                EMM_OK,
            "a handle");
    require(emm_memory_view(things.memory, 0, 64, &things.view) >= EMM_OK, "a view");
    things.page = std::aligned_alloc(4096, 4096);
    require(emm_torch_malloc(64, 0, EMM_STREAM_LEGACY), "the bridge");
    require(emm_numpy_handler(0), "the bridge's handler");
}

Busy::Busy(const std::vector<std::function<void()>> &acts) {
    for (const auto &act : acts) {
        threads_.emplace_back([this, act] {
            while (!over_) {
                act();
                ++rounds_;
            }
        });
    }
    while (rounds_ < 4 * acts.size()) {
        std::this_thread::yield();
    }
}

Busy::~Busy() {
    over_ = true;
    for (std::thread &thread : threads_) {
        thread.join();
    }
}

namespace {

size_t give_nothing(emm_context *, size_t, void *) {
    return 0;
}

} // namespace

void pair_of_handles() {
    emm_memory *memory = nullptr, *pinned = nullptr;
    if (emm_memory_alloc(things.context, 4096, EMM_STREAM_UNORDERED, &memory) >= EMM_OK) {
        emm_memory_release(memory);
    }
    if (emm_memory_hostalloc(things.context, 4096, 0, &pinned) >= EMM_OK) {
        emm_memory_release(pinned);
    }
}

void every_kind() {
    emm_context *const context = things.context;
    emm_deviceptr ptr = 0;
    void *host = nullptr;
    if (emm_memalloc(context, 64 << 10, EMM_STREAM_UNORDERED, &ptr) >= EMM_OK) {
        emm_memfree(context, ptr, 64 << 10, EMM_STREAM_UNORDERED);
    }
    if (emm_memhostalloc(context, 4096, 0, &host, nullptr) >= EMM_OK) {
        emm_memhostfree(context, host, 4096, 0, EMM_STREAM_UNORDERED);
    }
    auto counters = sized<emm_counters>();
    emm_get_counters(&counters);
    auto stats = sized<emm_stats>();
    emm_get_stats(context, &stats);
    auto usage = sized<emm_driver_usage>();
    emm_get_driver_usage(&usage);
    emm_set_pressure_callback(&give_nothing, nullptr);
    emm_defer_cleanup_begin(context);
    emm_defer_cleanup_end(context);
    emm_ipc_handle handle = {};
    if (emm_memory_export(things.memory, &handle) >= EMM_OK) {
        emm_release_ipc_handle(context, &handle);
    }
    pair_of_handles();
    emm_trim(context, 0, nullptr);
}

namespace {

// A complete plugin of four functions, to get its host's services.
emm_status create(const emm_host *, const emm_context_info *, const char *const *,
                  emm_manager **ret_manager) {
    *ret_manager = reinterpret_cast<emm_manager *>(ret_manager);
    return EMM_OK;
}
emm_status destroy(emm_manager *) {
    return EMM_OK;
}
emm_status memalloc(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    *ret_ptr = 0x1000;
    return EMM_OK;
}
emm_status memfree(emm_manager *, emm_deviceptr, size_t, emm_stream) {
    return EMM_OK;
}

} // namespace

const emm_plugin *linked_in_plugin(const emm_host *host) {
    static emm_plugin table = [] {
        auto made = sized<emm_plugin>();
        made.interface_version = EMM_PLUGIN_ABI_MAJOR;
        made.name = "linked-in";
        made.create = &create;
        made.destroy = &destroy;
        made.memalloc = &memalloc;
        made.memfree = &memfree;
        return made;
    }();
    services = host;
    return &table;
}

void use_services() {
    services->log(EMM_LOG_DEBUG, "from a thread of the parent");
    services->defer(things.context, &ignore, nullptr, 64);
    services->pressure(things.context, 64);
}

} // namespace forked
