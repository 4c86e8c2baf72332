#include "core/lifecycle/peer.h"

#include "core/memory/call.h"
#include "core/record/sharing.h"
#include "observe/error.h"

#include <string>

namespace emm::core {
namespace {

emm_status check_flags(uint32_t flags) {
    if (flags == EMM_ACCESS_NONE || flags == EMM_ACCESS_READ || flags == EMM_ACCESS_READ_WRITE) {
        return EMM_OK;
    }
    return observe::refuse(
        "flags: expected EMM_ACCESS_NONE, _READ or _READ_WRITE (0, 1 or 3), found {}", flags);
}

emm_status check_ordinal(const emm_context &context, int32_t peer_device) {
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(context.driver, cuDeviceGetCount, &count));
    if (peer_device >= 0 && peer_device < count && peer_device != context.device) {
        return EMM_OK;
    }
    return observe::refuse("peer_device: expected another device than the context's own, {}, of "
                           "the {} here, found {}",
                           context.device, count, peer_device);
}

emm_status check_reach(const emm_context &context, int32_t peer_device) {
    int possible = 0;
    EMM_TRY(EMM_DRIVER_CALL(context.driver, cuDeviceCanAccessPeer, &possible, peer_device,
                            context.device));
    if (possible) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_NOT_SUPPORTED, 0, "device {} cannot reach the memory of device {}",
                         peer_device, context.device);
}

} // namespace

emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags) {
    EMM_TRY(admit(context));
    EMM_TRY(check_flags(flags));
    EMM_TRY(check_ordinal(context, peer_device));
    if (flags != EMM_ACCESS_NONE) {
        EMM_TRY(check_reach(context, peer_device));
    }
    // Noted before anything has it, so that what is opened meanwhile has it too.
    const uint32_t before = context.announced.access(peer_device);
    context.announced.set_access(peer_device, flags);
    const emm_status status = EMM_CALL(context, set_access, peer_device, flags);
    if (status < EMM_OK) {
        context.announced.set_access(peer_device, before);
    } else {
        sharing->set_access(context, peer_device, flags);
    }
    return status;
}

} // namespace emm::core
