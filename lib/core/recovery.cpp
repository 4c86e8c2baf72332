#include "core/recovery.h"

#include "core/call.h"
#include "core/counters.h"
#include "core/holders.h"
#include "core/uncancelled.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"

#include <fmt/format.h>

#include <mutex>
#include <string>

namespace emm::core {
namespace {

struct Pressure {
    std::mutex mutex;
    emm_pressure_callback callback = nullptr;
    void *user_data = nullptr;
};

Pressure &pressure() {
    static observe::Immortal<Pressure> the_pressure;
    return the_pressure.value;
}

thread_local bool pressing = false;

std::string free_of_total(emm_context &context) {
    size_t free = 0, total = 0;
    const emm_status status = EMM_CALL(context, get_memory_info, &free, &total);
    return status >= EMM_OK ? fmt::format(", {} of {} bytes free", free, total)
                            : ", free memory not known";
}

// What is pending, and what the plugin keeps.
void return_to_driver(emm_context &context) noexcept {
    if (context.pending.in_section() || has_died(context)) {
        return;
    }
    const Returns::Scope returning(context.returns);
    if (may_return(context)) {
        flush(context);
    }
    size_t released = 0;
    EMM_CALL(context, trim, size_t(0), &released);
}

} // namespace

void recover(emm_context &context, size_t size) noexcept {
    ++counters().memory_retries;
    context.pressure_runs.fetch_add(1, std::memory_order_relaxed);
    return_to_driver(context);
    context.returns.wait_for_others();
    if (press(context, size) > 0 && !observe::is_forked_child()) {
        return_to_driver(context); // what the application has given back is no further yet
        context.returns.wait_for_others();
    }
}

emm_status exhausted(emm_context &context, emm_status status, size_t size,
                     const void *caller) noexcept {
    try {
        observe::ErrorDetail detail = observe::last_detail();
        const std::string said = detail.text;
        const bool of_device = status == EMM_E_OUT_OF_MEMORY;
        detail.code = status;
        detail.text = fmt::format("out of {} memory: {} bytes asked for{} ({}); {}",
                                  of_device ? "device" : "host", size,
                                  of_device ? free_of_total(context) : "", context, said);
        detail.report = report_exhaustion(context, size, !of_device, caller);
        return observe::fail(std::move(detail));
    } catch (const std::bad_alloc &) {
        return status;
    }
}

void set_pressure_callback(emm_pressure_callback callback, void *user_data) {
    std::lock_guard lock(pressure().mutex);
    pressure().callback = callback;
    pressure().user_data = user_data;
}

bool is_pressing() noexcept {
    return pressing;
}

size_t press(emm_context &context, size_t bytes) noexcept {
    if (pressing) {
        return 0;
    }
    emm_pressure_callback callback = nullptr;
    void *user_data = nullptr;
    {
        std::lock_guard lock(pressure().mutex);
        callback = pressure().callback;
        user_data = pressure().user_data;
    }
    if (!callback) {
        return 0;
    }
    const Uncancelled uncancelled;
    pressing = true;
    size_t given_back = 0;
    try {
        given_back = callback(&context, bytes, user_data);
    } catch (...) {
        observe::log(EMM_LOG_WARN, "an exception left the pressure callback; it counts as 0 bytes");
    }
    pressing = false;
    return given_back;
}

} // namespace emm::core
