#include "core/memory/recovery.h"

#include "core/memory/call.h"
#include "core/record/asleep.h"
#include "core/record/context.h"
#include "core/record/epoch.h"
#include "core/record/this_thread.h"
#include "driver/account.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/program_code.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

namespace emm::core {
namespace {

struct Pressure {
    std::mutex mutex;
    emm_pressure_callback_info current = {};
};

constexpr auto &pressure = observe::immortal<Pressure>;

thread_local bool pressing = false;

// No plugin rounds a request up by more than this; CUDA's pools do by so much.
constexpr uint64_t most_rounding = 32 << 20;

std::optional<observe::MemoryReport::Driver>
figures_by(const emm_context &context, decltype(&::cuMemGetInfo) get_info) noexcept {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    const driver::RelaxedCapture relaxed(context.driver);
    size_t free = 0, total = 0;
    if (current.result() != CUDA_SUCCESS || get_info(&free, &total) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    return observe::MemoryReport::Driver{free, total};
}

std::string free_of_total(const emm_context &context) {
    const std::string limit = driver::limit_text(driver::account().figures(context.device));
    if (!limit.empty()) {
        return ", " + limit;
    }
    const auto driver = driver_figures(context);
    return driver ? fmt::format(", {} of {} bytes free on the device", driver->free, driver->total)
                  : ", free memory not known";
}

// Flushes pending deallocations, and trims the plugin's cache. The trim may put frees on the queue.
void return_to_driver(emm_context &context) noexcept {
    if (context.pending.in_section() || has_died(context)) {
        return;
    }
    const Returns::Scope returning(context.returns);
    flush(context);
    size_t released = 0;
    EMM_CALL(context, trim, size_t(0), &released);
    if (!context.pending.in_section()) { // one may have begun
        flush(context);
    }
}

// The same, and waits for memory that other threads are giving back.
void return_and_wait(emm_context &context) noexcept {
    return_to_driver(context);
    context.returns.wait_for_others();
}

constexpr int32_t any_device = -1;

// Visits the contexts that serve memory of the device, except `left_out`, until `visit` returns
// true. A reset or retirement of a visited context waits for the end of the visit, as for any call
// by a handle.
template <class Visit>
bool any_context(int32_t device, const emm_context *left_out, Visit visit) noexcept {
    for (emm_context *other = first_context(); other; other = other->next) {
        if (other == left_out || (device != any_device && other->device != device)) {
            continue;
        }
        const HandleCall call(other->epoch);
        if (Epoch::is_serving(call.epoch()) && is_served(*other) && visit(*other)) {
            return true;
        }
    }
    return false;
}

template <class Visit>
bool any_other(const emm_context &context, bool of_device, Visit visit) noexcept {
    return any_context(of_device ? context.device : any_device, &context, visit);
}

// If the driver has the memory, the request failed for another reason, such as a limit.
bool may_others_hold(const emm_context &context, bool of_device, size_t size) noexcept {
    const auto driver = of_device ? driver_figures(context) : std::nullopt;
    return (!driver || driver->free < size + most_rounding) &&
           any_other(context, of_device, [](emm_context &) { return true; });
}

// Steps 1 and 2.
emm_status reclaim(emm_context &context, bool of_device, size_t size,
                   const std::function<emm_status()> &again) noexcept {
    return_and_wait(context);
    const emm_status status = again();
    if (!is_exhaustion(status) || !may_others_hold(context, of_device, size)) {
        return status;
    }
    any_other(context, of_device, [](emm_context &other) {
        return_and_wait(other);
        return false;
    });
    return again();
}

// Asks the neighbours if they may hold the missing bytes. If the bound has room, the request failed
// for another reason.
bool did_neighbours_give(int32_t device, size_t size) noexcept {
    if (!ask_neighbours || observe::is_forked_child()) {
        return false;
    }
    const driver::Account::Figures its = driver::account().figures(device);
    return its.bound != 0 && its.others.sum() != 0 && its.used + size + most_rounding > its.bound &&
           ask_neighbours();
}

} // namespace

emm_status recover(emm_context &context, size_t size, emm_status status,
                   const std::function<emm_status()> &again) noexcept {
    ++counters().memory_retries;
    context.pressure_runs.fetch_add(1, std::memory_order_relaxed);
    forget_ended_contexts();
    const bool of_device = status == EMM_E_OUT_OF_MEMORY;
    status = reclaim(context, of_device, size, again);
    if (is_exhaustion(status) && press(context, size) > 0) {
        status = observe::is_forked_child() ? again() : reclaim(context, of_device, size, again);
    }
    return status == EMM_E_OUT_OF_MEMORY && did_neighbours_give(context.device, size) ? again()
                                                                                      : status;
}

bool make_room(int32_t device, size_t size, const std::function<bool()> &again) noexcept {
    const auto return_all = [&] {
        any_context(device, nullptr, [](emm_context &context) {
            return_and_wait(context);
            return false;
        });
    };
    ++counters().memory_retries;
    forget_ended_contexts();
    return_all();
    if (again()) {
        return true;
    }
    emm_context *asked = nullptr;
    any_context(device, nullptr,
                [&](emm_context &context) { return (asked = &context) != nullptr; });
    if (asked && press(*asked, size) > 0 && !observe::is_forked_child()) {
        return_all();
        if (again()) {
            return true;
        }
    }
    return did_neighbours_give(device, size) && again();
}

void give_back_idle() noexcept {
    const observe::NoProgramCode no_program_code(must_wait_asleep());
    any_context(any_device, nullptr, [](emm_context &context) {
        return_to_driver(context);
        return false;
    });
    driver::account().give_back_reserves();
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

std::optional<observe::MemoryReport::Driver> driver_figures(const emm_context &context) noexcept {
    return figures_by(context, context.driver.cuMemGetInfo);
}

std::optional<observe::MemoryReport::Driver> device_figures(const emm_context &context) noexcept {
    return figures_by(
        context, reinterpret_cast<decltype(&::cuMemGetInfo)>(driver::entry("cuMemGetInfo", 12000)));
}

emm_pressure_callback_info set_pressure_callback(const emm_pressure_callback_info &next) {
    std::lock_guard lock(pressure().mutex);
    return std::exchange(pressure().current, next);
}

bool is_in_pressure_callback() noexcept {
    return pressing;
}

size_t press(emm_context &context, size_t bytes) noexcept {
    if (pressing || observe::NoProgramCode::is_in_force()) {
        return 0;
    }
    const emm_pressure_callback_info current = [] {
        std::lock_guard lock(pressure().mutex);
        return pressure().current;
    }();
    if (!current.callback) {
        return 0;
    }
    const Uncancelled uncancelled;
    pressing = true;
    size_t given_back = 0;
    try {
        const observe::PreservedFailure said(EMM_E_OUT_OF_MEMORY);
        const observe::ProgramCode program_code;
        given_back = current.callback(&context, bytes, current.user_data);
    } catch (...) {
        observe::log(EMM_LOG_WARN,
                     "the pressure callback threw an exception, which counts as 0 bytes");
    }
    pressing = false;
    return given_back;
}

} // namespace emm::core
