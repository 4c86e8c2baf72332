#include "core/memory/driver_memory.h"

#include "core/memory/memory.h"
#include "core/memory/recovery.h"
#include "core/record/context.h"
#include "core/tracking/tracking.h"
#include "driver/account.h"
#include "driver/driver.h"
#include "driver/meter.h"
#include "observe/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace emm::core {
namespace {

using driver::Holder;
using driver::Kind;

static_assert(uint32_t(Kind::external) == EMM_MEMORY_EXTERNAL &&
              uint32_t(Kind::pinned) == EMM_MEMORY_PINNED && driver::kinds <= EMM_MEMORY_KINDS);

// The kinds for which reports name the callers.
bool is_tracked(Kind kind) {
    return kind == Kind::physical || kind == Kind::pool || kind == Kind::array ||
           kind == Kind::mipmapped_array;
}

uint64_t track_if_wanted(const emm_driver_memory &memory, const void *caller) {
    uint64_t id = 0;
    if (is_tracked(Kind(memory.kind)) && !memory.pool &&
        open_tracking().depth != observe::TrackDepth::none) {
        track_driver_memory(memory.device, memory.bytes, caller, id);
    }
    return id;
}

emm_status no_id(const char *function, uint64_t id) noexcept {
    return observe::fail(EMM_E_NOT_OWNED, 0, "{}: unknown id {}", function, id);
}

uint64_t managers_bytes(int32_t device) {
    uint64_t bytes = 0;
    for (emm_context *context = first_context(); context; context = context->next) {
        const OwnerGuard guard(context->manager_lock, std::try_to_lock);
        auto stats = observe::sized<emm_stats>();
        if (context->device == device && guard.owns() && is_served(*context) &&
            get_stats(*context, &stats) >= EMM_OK) {
            bytes += stats.reserved_bytes - std::min(stats.spilled_bytes, stats.reserved_bytes);
        }
    }
    return bytes;
}

// If emm serves a context of the device, the failure gets the same report as a plugin's.
emm_status refuse(int32_t device, uint64_t bytes, const void *caller) {
    observe::ErrorDetail detail;
    detail.code = EMM_E_OUT_OF_MEMORY;
    detail.driver_result = CUDA_ERROR_OUT_OF_MEMORY;
    detail.text = fmt::format("out of device memory: {} bytes asked for on device {}; {}", bytes,
                              device, driver::limit_text(driver::account().figures(device)));
    for (emm_context *context = first_context(); context; context = context->next) {
        if (context->device == device && is_served(*context)) {
            detail.report = report_exhaustion(*context, bytes, false, caller);
            break;
        }
    }
    return observe::fail(std::move(detail));
}

} // namespace

emm_status take_driver_memory(const emm_driver_memory &memory, const void *caller,
                              uint64_t &ret_id) {
    const driver::Account::Charge charge{memory.device, Holder::program, Kind(memory.kind),
                                         driver::device_granules(memory.bytes),
                                         track_if_wanted(memory, caller)};
    driver::Account &account = driver::account();
    const auto pool = reinterpret_cast<uintptr_t>(memory.pool);
    const int32_t device = memory.pool ? account.device_of(pool) : memory.device;
    uint64_t id = 0;
    const auto take = [&] {
        id = memory.pool ? account.take_growth(pool, memory.bytes) : account.take(charge);
        return id != 0;
    };
    const bool can_be_met = memory.bytes <= account.bound(device);
    if (!take() && (!can_be_met || !make_room(device, memory.bytes, take))) {
        untrack_driver_memory(charge.tracked);
        return refuse(device, memory.bytes, caller);
    }
    ret_id = id;
    return EMM_OK;
}

emm_status keep_driver_memory(uint64_t id, CUmemPoolHandle_st *pool) noexcept {
    if (driver::account().exceeds(id)) {
        return observe::fail(EMM_E_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY,
                             "emm_keep_driver_memory: the pool has grown above the bound");
    }
    return id == 0 || driver::account().keep(id, reinterpret_cast<uintptr_t>(pool))
               ? EMM_OK
               : no_id("emm_keep_driver_memory", id);
}

emm_status give_driver_memory(uint64_t id) noexcept {
    uint64_t tracked = 0;
    if (!driver::account().give(id, &tracked)) {
        return no_id("emm_give_driver_memory", id);
    }
    return untrack_driver_memory(tracked);
}

emm_status device_account(int32_t device, emm_device_account &ret_account) {
    forget_ended_contexts();
    const driver::Account::Figures figures = driver::account().figures(device);
    const auto copy = [](const driver::Tally &row) {
        return emm_memory_row{row.live, row.bytes, row.peak_bytes, row.made};
    };
    const auto &managers = figures.rows[size_t(Holder::managers)];
    const auto &program = figures.rows[size_t(Holder::program)];
    auto account = observe::sized<emm_device_account>();
    account.is_counted = driver::is_counted();
    account.limit_bytes = figures.bound;
    account.managers_bytes = managers_bytes(device);
    account.used_bytes =
        account.is_counted ? figures.used : account.managers_bytes + driver::bounded_sum(program);
    std::transform(std::begin(managers), std::end(managers), account.managers, copy);
    std::transform(std::begin(program), std::end(program), account.program, copy);
    ret_account = account;
    return EMM_OK;
}

} // namespace emm::core
