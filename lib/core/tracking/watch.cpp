#include "core/tracking/watch.h"

#include "driver/account.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/program_code.h"

#include <mutex>

namespace emm::core {
namespace {

// The hook with its user data. Readers take no lock, except while the hook is being replaced. Then
// the version is odd; afterwards it is even and larger than before.
class Hook {
public:
    std::mutex mutex; // held while the hook is replaced

    emm_event_hook_info read() noexcept {
        const uint64_t version = version_.load(std::memory_order_acquire);
        const emm_event_hook_info found = fields();
        if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version) {
            return found;
        }
        std::lock_guard lock(mutex);
        return fields();
    }

    // The mutex is held. Returns the previous hook.
    emm_event_hook_info replace(const emm_event_hook_info &next) noexcept {
        const emm_event_hook_info previous = fields();
        version_.fetch_add(1, std::memory_order_relaxed);
        hook_.store(next.hook, std::memory_order_release);
        user_data_.store(next.user_data, std::memory_order_release);
        version_.fetch_add(1, std::memory_order_release);
        has_hook.store(next.hook != nullptr, std::memory_order_relaxed);
        return previous;
    }

private:
    // The loads acquire, so a thread that sees a new field sees a new version afterwards.
    emm_event_hook_info fields() const noexcept {
        return {hook_.load(std::memory_order_acquire), user_data_.load(std::memory_order_acquire)};
    }

    std::atomic<uint64_t> version_{0};
    std::atomic<emm_event_hook> hook_{nullptr};
    std::atomic<void *> user_data_{nullptr};
};

constexpr auto &the_hook = observe::immortal<Hook>;

// The hook's mutex is held.
void watch(emm_context &context) noexcept {
    const bool is_told = has_hook.load(std::memory_order_relaxed) || is_logging;
    const uint32_t wanted = (is_told ? state_watched : 0) | (is_tracking() ? state_tracked : 0);
    context.state.fetch_or(wanted, std::memory_order_release);
    context.state.fetch_and(wanted | ~(state_watched | state_tracked), std::memory_order_release);
}

// Logs a row that names the pool of this number.
void log_pool(const emm_context &context) noexcept {
    observe::EventBuffer *const buffer = observe::event_buffer();
    if (!buffer) {
        return;
    }
    const uint64_t outer = buffer->begin();
    const uint64_t now = observe::event_ticks();
    buffer->began(now);
    observe::EventRecord *const record = buffer->next(0);
    if (!record) {
        buffer->abandon(outer);
        return;
    }
    *record = {};
    record->start = record->end = now;
    record->context = context.number;
    record->device = static_cast<uint16_t>(context.device);
    observe::set_pool(*record, context.pool, static_cast<uint32_t>(context.id));
    buffer->commit(now, outer);
}

thread_local bool inside_hook = false;

void call_hook(const emm_event &event) noexcept {
    if (inside_hook || observe::NoProgramCode::is_in_force()) {
        return;
    }
    const emm_event_hook_info current = the_hook().read();
    if (!current.hook) {
        return;
    }
    const Uncancelled uncancelled;
    inside_hook = true;
    try {
        const observe::PreservedFailure said(event.status);
        const observe::ProgramCode program_code;
        current.hook(&event, current.user_data);
    } catch (...) {
        observe::log(EMM_LOG_WARN, "the event hook threw an exception, which emm ignores");
    }
    inside_hook = false;
}

} // namespace

emm_status set_event_hook(emm_event_hook hook, void *user_data, emm_event_hook_info *ret_previous) {
    Hook &current = the_hook();
    std::lock_guard lock(current.mutex);
    const emm_event_hook_info previous = current.replace({hook, hook ? user_data : nullptr});
    for (emm_context *context = first_context(); context; context = context->next) {
        watch(*context);
    }
    if (ret_previous) {
        *ret_previous = previous;
    }
    return EMM_OK;
}

void watch_if_wanted(emm_context &context) {
    if (observe::open_event_log()) {
        is_logging = true;
        if (context.is_named()) {
            log_pool(context);
        } else {
            size_t free = context.free_at_first, total = context.total_memory;
            driver::account().bound_figures(context.device, &free, &total);
            WatchedCall(context, observe::EventType::context, free, total, EMM_STREAM_UNORDERED,
                        nullptr)
                .done(EMM_OK);
        }
    }
    open_tracking();
    // The context is in the list already, so a thread that sets a hook later finds the context
    // there.
    std::lock_guard lock(the_hook().mutex);
    watch(context);
}

void WatchedCall::tell_hook(emm_status status) const noexcept {
    auto event = observe::sized<emm_event>();
    event.memory = memory_of(type_);
    event.context = &context_;
    (observe::is_free(type_) ? event.old_ptr : event.new_ptr) = address_;
    event.size = size_;
    event.stream = stream_;
    event.status = status;
    event.tag = observe::current_tag() ? observe::current_tag()->path.c_str() : nullptr;
    call_hook(event);
}

} // namespace emm::core
