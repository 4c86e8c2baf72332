#include "room.h"

#include "server.h"

namespace emm::run {
namespace {

int give_back_of(emm_context *context, void *wanted) {
    const CUdevice device = *static_cast<const CUdevice *>(wanted);
    if (device == every_device || device_of_context(context) == device) {
        emm_trim(context, 0, nullptr);
    }
    return 0;
}

} // namespace

void give_back_caches(CUdevice device) {
    server().give_back_of_ended_graphs();
    const auto kept = server().contexts.keep();
    emm_foreach_context(&give_back_of, &device);
}

bool ask_programs_caches(CUdevice device, size_t bytes) {
    emm_context *const context =
        device == every_device ? nullptr : server().contexts.known_on(device);
    return context && server().release.ask(context, bytes, Memory::device);
}

} // namespace emm::run
