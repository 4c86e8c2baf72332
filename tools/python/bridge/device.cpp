#include "device.h"

#include "exceptions.h"
#include "interpreter.h"

#include <atomic>
#include <string>

namespace emm::bridge {
namespace {

// Records live as long as the process. A record that dies with its context is not replaced: its
// addresses may belong to another context by the time they are freed.
std::atomic<emm_context *> contexts[most_devices];

} // namespace

emm_context *known_context(int device) noexcept {
    return device >= 0 && device < most_devices ? contexts[device].load(std::memory_order_acquire)
                                                : nullptr;
}

emm_status find_context(int device, emm_context **ret_context) {
    emm_context *context = known_context(device);
    if (!context) {
        const emm_status status =
            without_lock([&] { return emm_context_for_device(device, &context); });
        if (status < EMM_OK) {
            return status;
        }
        if (device < most_devices) {
            contexts[device].store(context, std::memory_order_release);
        }
    }
    *ret_context = context;
    return EMM_OK;
}

void refuse(const char *what, size_t size, int device) {
    const std::string text = emm_last_error()->text;
    throw_error(std::string(what) + " " + std::to_string(size) + " bytes on device " +
                std::to_string(device) + ". " + text);
}

} // namespace emm::bridge
