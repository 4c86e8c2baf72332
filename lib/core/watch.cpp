#include "core/watch.h"

#include "core/registry.h"
#include "observe/immortal.h"
#include "observe/log.h"

#include <list>
#include <mutex>

namespace emm::core {
namespace {

// Every hook that was ever set, once: a thread may be inside one that was replaced.
struct Hooks {
    std::mutex mutex;
    std::list<emm_event_hook_info> known;
};

Hooks &hooks() {
    static observe::Immortal<Hooks> the_hooks;
    return the_hooks.value;
}

const emm_event_hook_info *remember(Hooks &of, emm_event_hook hook, void *user_data) {
    if (!hook) {
        return nullptr;
    }
    for (const emm_event_hook_info &known : of.known) {
        if (known.hook == hook && known.user_data == user_data) {
            return &known;
        }
    }
    return &of.known.emplace_back(emm_event_hook_info{hook, user_data});
}

void watch(emm_context &context, bool wanted) noexcept {
    if (wanted) {
        context.gate.fetch_or(gate_watched, std::memory_order_release);
    } else {
        context.gate.fetch_and(~gate_watched, std::memory_order_release);
    }
}

uint32_t memory_of(observe::EventType type) noexcept {
    return static_cast<uint32_t>(type) / 2 + EMM_EVENT_DEVICE;
}

thread_local bool inside_hook = false;

void call_hook(const emm_event &event) noexcept {
    const emm_event_hook_info *hook = current_hook.load(std::memory_order_acquire);
    if (!hook || inside_hook) {
        return;
    }
    inside_hook = true;
    try {
        hook->hook(&event, hook->user_data);
    } catch (...) {
        observe::log(EMM_LOG_WARN, "an exception left the event hook; it counts as a return");
    }
    inside_hook = false;
}

} // namespace

emm_status set_event_hook(emm_event_hook hook, void *user_data, emm_event_hook_info *ret_previous) {
    Hooks &all = hooks();
    std::lock_guard lock(all.mutex);
    const emm_event_hook_info *previous = current_hook.load(std::memory_order_relaxed);
    const emm_event_hook_info *next = remember(all, hook, user_data);
    current_hook.store(next, std::memory_order_release);
    for (emm_context *context = first_context(); context; context = context->next) {
        watch(*context, next || is_logging);
    }
    if (ret_previous) {
        *ret_previous = previous ? *previous : emm_event_hook_info{};
    }
    return EMM_OK;
}

void watch_if_wanted(emm_context &context) {
    if (observe::open_event_log()) {
        is_logging = true;
        Watch(context, observe::EventType::context, context.free_at_first, context.total_memory,
              EMM_STREAM_UNORDERED, nullptr)
            .done(EMM_OK);
    }
    // Its record is in the list by now: whoever sets a hook later finds it there.
    std::lock_guard lock(hooks().mutex);
    watch(context, current_hook.load(std::memory_order_relaxed) || is_logging);
}

void Watch::tell_hook(emm_status status) const noexcept {
    emm_event event = {};
    event.struct_size = sizeof event;
    event.memory = memory_of(type_);
    event.context = &context_;
    (observe::is_free(type_) ? event.old_ptr : event.new_ptr) = address_;
    event.size = size_;
    event.stream = stream_;
    event.status = status;
    call_hook(event);
}

} // namespace emm::core
