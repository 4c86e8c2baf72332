#pragma once

#include "core/context.h"
#include "observe/events/record.h"

// Who is told of each event: the hook that the application has set. While there is one, every
// context's gate has gate_watched, so that calls take the slow path, which tells.
namespace emm::core {

emm_status set_event_hook(emm_event_hook hook, void *user_data, emm_event_hook_info *ret_previous);

// A context begins to serve.
void watch_if_wanted(emm_context &context);

inline bool is_watched(const emm_context &context) noexcept {
    const uint32_t gate = context.gate.load(std::memory_order_acquire);
    return (gate & (gate_watched | gate_forked)) == gate_watched;
}

inline emm_deviceptr address_of(const void *host) noexcept {
    return reinterpret_cast<uintptr_t>(host);
}

// One call of a watched context, from before it to after it.
class Watch {
public:
    Watch(emm_context &context, observe::EventType type, emm_deviceptr address, size_t size,
          emm_stream stream, const void *caller) noexcept
        : context_(context), type_(type), address_(address), size_(size), stream_(stream),
          caller_(caller) {}

    // These answer `status`. What a failed call has left in its output does not count.
    emm_status allocated(emm_status status, const emm_deviceptr *ptr) noexcept {
        address_ = status >= EMM_OK ? *ptr : 0;
        return done(status);
    }
    emm_status allocated(emm_status status, void *const *host) noexcept {
        address_ = status >= EMM_OK ? address_of(*host) : 0;
        return done(status);
    }
    emm_status done(emm_status status) noexcept;

private:
    emm_context &context_;
    const observe::EventType type_;
    emm_deviceptr address_;
    const size_t size_;
    const emm_stream stream_;
    const void *const caller_;
};

} // namespace emm::core
