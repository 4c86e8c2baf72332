#include "bench/empty_plugin.h"

namespace emm::tool {
namespace {

constexpr emm_deviceptr the_address = 1 << 20;

emm_status create(const emm_host *, const emm_context_info *, const char *const *,
                  emm_manager **ret_manager) {
    static char manager;
    *ret_manager = reinterpret_cast<emm_manager *>(&manager);
    return EMM_OK;
}

emm_status destroy(emm_manager *) {
    return EMM_OK;
}

emm_status memalloc(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    *ret_ptr = the_address;
    return EMM_OK;
}

emm_status memfree(emm_manager *, emm_deviceptr, size_t, emm_stream) {
    return EMM_OK;
}

emm_plugin make_table() {
    emm_plugin table = {};
    table.struct_size = sizeof table;
    table.interface_version = EMM_PLUGIN_ABI_MAJOR;
    table.interface_minor = EMM_PLUGIN_ABI_MINOR;
    table.name = "empty";
    table.description = "does nothing";
    table.create = create;
    table.destroy = destroy;
    table.memalloc = memalloc;
    table.memfree = memfree;
    return table;
}

} // namespace

const emm_plugin *empty_plugin_entry(const emm_host *) {
    static const emm_plugin table = make_table();
    return &table;
}

} // namespace emm::tool
