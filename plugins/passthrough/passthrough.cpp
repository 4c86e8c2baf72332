// passthrough: every request goes straight to the driver, and frees go back through emm's queue of
// pending deallocations, as in Numba's own memory manager. It serves when no plugin is named.
//
//   1. One class, one object for each CUDA context. emm::make_plugin turns its members into the
//      table's slots, and exceptions into statuses. Slots that it leaves out (pinned, registered
//      and managed memory, memory info, IPC) are emm's own, over the driver.
//   2. The driver comes from host.driver(): no CUDA library is linked.
//
// Memory of cuMemAlloc may be used anywhere at once. common/queued_frees.h says how it goes back.
#include "common/queued_frees.h"

namespace emm::passthrough {
namespace {

class Manager : public common::QueuedFrees {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *)
        : QueuedFrees("passthrough", host, info) {}

    emm_status memalloc(size_t size, emm_stream, emm_deviceptr *ret_ptr) {
        const auto call = [&](CUdeviceptr *ptr) { return state_->driver.cuMemAlloc(ptr, size); };
        return allocate(size, "cuMemAlloc", call, ret_ptr);
    }
};

} // namespace
} // namespace emm::passthrough

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::passthrough::Manager>(
        "passthrough", EMM_VERSION, "Passes every request straight to the driver",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CAPTURE);
    return &table;
}
