#include "core/record/context.h"

#include "core/record/this_thread.h"
#include "driver/account.h"
#include "driver/meter.h"
#include "observe/error.h"
#include "observe/events/record.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/program_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

fmt::format_context::iterator fmt::formatter<emm_context>::format(const emm_context &context,
                                                                  fmt::format_context &to) const {
    return fmt::format_to(to.out(), "device {}, context {}{}{}", context.device, context.id,
                          context.is_named() ? ", pool " : "", context.pool);
}

static std::atomic<uint32_t> next_pool_number{emm::observe::first_pool_number};

emm_context::emm_context(emm_context &its_group, std::string name,
                         const emm::core::DeferredLimits &limits)
    : driver(its_group.driver), cuda_context(its_group.cuda_context), id(its_group.id),
      group(its_group), pool(std::move(name)), number(next_pool_number++), device(its_group.device),
      primary(its_group.primary), free_at_first(its_group.free_at_first),
      total_memory(its_group.total_memory), pending(limits) {
    std::memcpy(uuid, its_group.uuid, sizeof uuid);
    std::memcpy(pci, its_group.pci, sizeof pci);
}

namespace emm::core {
namespace {

// The newest record. A forked child walks the list, so the list is complete at every moment.
constinit std::atomic<emm_context *> newest{nullptr};

// Marks all contexts in a child that must not use emm, because the raw calls look at the state
// flags alone.
void mark_contexts() {
    for (emm_context *context = first_context(); context; context = context->next) {
        context->state.fetch_or(state_forked, std::memory_order_relaxed);
    }
}

[[gnu::constructor]] void have_contexts_marked() {
    observe::mark_forked_child = &mark_contexts;
}

bool is_primary(const driver::Driver &driver, CUdevice device, CUcontext context) {
    unsigned flags = 0;
    int active = 0;
    CUcontext primary = nullptr;
    if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        driver.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
        return false;
    }
    driver.cuDevicePrimaryCtxRelease(device);
    return primary == context;
}

emm_status run(const PendingDeallocations::Entry &entry, uint32_t what) noexcept {
    try {
        return entry.function(entry.argument, what);
    } catch (...) {
        return EMM_E_PLUGIN_EXCEPTION;
    }
}

} // namespace

emm_context *first_context() noexcept {
    return newest.load(std::memory_order_acquire);
}

void add_context(emm_context &made) noexcept {
    made.next = newest.load(std::memory_order_relaxed);
    newest.store(&made, std::memory_order_release);
    if (made.is_named()) {
        made.next_pool = made.group.next_pool.load();
        made.group.next_pool = &made;
    }
}

void remove_pool(emm_context &pool) noexcept {
    emm_context *before = &pool.group;
    while (before && before->next_pool != &pool) {
        before = before->next_pool;
    }
    if (before) {
        before->next_pool = pool.next_pool.load();
    }
}

emm_context_info info_of(emm_context &context) {
    auto info = observe::sized<emm_context_info>();
    info.device = context.device;
    info.cuda_context = context.cuda_context;
    info.context_id = context.id;
    info.context = &context;
    info.primary = context.primary;
    std::memcpy(info.device_uuid, context.uuid, sizeof info.device_uuid);
    info.pool = context.pool.c_str();
    info.group = &context.group;
    return info;
}

emm_status identify(emm_context &context) {
    const driver::Driver &driver = context.driver;
    CUdevice device = 0;
    driver::Current current(driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    EMM_TRY(EMM_DRIVER_CALL(driver, cuCtxGetDevice, &device));
    driver::DeviceIdentity identity;
    EMM_TRY(driver::identify_device(driver, device, &identity));
    driver::RelaxedCapture relaxed(driver);
    // Not the metered entry, because that one would report the bound, which may change.
    const auto get_info =
        reinterpret_cast<decltype(&::cuMemGetInfo)>(driver::entry("cuMemGetInfo", 12000));
    EMM_TRY(driver::check(get_info(&context.free_at_first, &context.total_memory), "cuMemGetInfo"));
    context.device = device;
    std::memcpy(context.uuid, identity.uuid, sizeof context.uuid);
    std::memcpy(context.pci, identity.pci, sizeof context.pci);
    context.primary = is_primary(driver, device, context.cuda_context);
    return EMM_OK;
}

uint64_t obtainable_memory(const emm_context &context) noexcept {
    const uint64_t bound = driver::account().bound(context.device);
    return bound == 0 ? context.total_memory : std::min<uint64_t>(context.total_memory, bound);
}

emm_status admit(const emm_context &context) noexcept {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    if ((state & ~state_serving) == 0) {
        return EMM_OK;
    }
    if (this_thread.managing == &context) {
        return observe::fail(
            EMM_E_REENTERED, 0,
            "the plugin called emm while creating, resetting or destroying this context's manager");
    }
    if ((state & ~(state_serving | state_managing | state_unserved)) == 0) {
        return observe::fail(EMM_E_BUSY, 0,
                             "the context has no manager now: creating or resetting it failed or "
                             "has not ended; ask for the context again");
    }
    const emm_status code = state & state_forked      ? EMM_E_FORKED
                            : state & state_shut_down ? EMM_E_SHUT_DOWN
                            : state & state_retired   ? EMM_E_RETIRED
                                                      : EMM_E_DEVICE_LOST;
    return observe::fail(code, 0, emm_status_text(code));
}

emm_status admit_alive(emm_context &context) noexcept {
    const emm_status status = admit(context);
    return status == EMM_OK && has_died(context) ? admit(context) : status;
}

emm_status expect_own(const emm_context &context, emm_stream stream) noexcept {
    const bool built_in = reinterpret_cast<uintptr_t>(stream) <= 2; // legacy and per-thread
    if (built_in || stream == EMM_STREAM_UNORDERED) {
        return EMM_OK;
    }
    bool foreign = false;
    EMM_TRY(driver::check(driver::is_foreign(context.driver, context.cuda_context, stream, foreign),
                          "cuStreamGetCtx"));
    if (!foreign) {
        return EMM_OK;
    }
    return observe::fail(EMM_E_INVALID_VALUE, 0,
                         "the stream belongs to another context, whose work this one cannot wait "
                         "for; use a stream of {}, and let it wait for an event of the other one",
                         context);
}

bool is_late(emm_context &context, emm_status *ret_status) noexcept {
    const uint32_t state = context.state.load(std::memory_order_acquire);
    if ((state & ~state_serving) == 0) {
        return false;
    }
    if ((state & state_late) != 0 && (state & state_forked) == 0) {
        ++counters().late_frees;
        *ret_status = EMM_OK;
    } else {
        *ret_status = admit(context);
    }
    return true;
}

// Only a late-context answer means that the context has died. After that the driver is not asked
// again: it crashes once the handle's memory is reused.
bool is_alive(const emm_context &context) noexcept {
    std::atomic<bool> &ended = context.group.ended;
    if (!ended.load(std::memory_order_acquire) &&
        driver::is_late(driver::check_alive(context.driver, context.cuda_context, context.id))) {
        ended.store(true, std::memory_order_release);
    }
    return !ended.load(std::memory_order_acquire);
}

bool has_died(emm_context &context) noexcept {
    const bool died = !is_alive(context);
    if (died) {
        context.state.fetch_or(state_retired, std::memory_order_relaxed);
    }
    return died;
}

void forget_ended_contexts() noexcept {
    for (emm_context *context = driver::is_counted() ? first_context() : nullptr; context;
         context = context->next) {
        if (driver::holds_memory(context->id) && !is_alive(*context)) {
            driver::forget_context(context->id);
        }
    }
}

// Relaxed, because a plugin's free may invalidate captures otherwise.
void flush(emm_context &context) noexcept {
    if (observe::NoProgramCode::is_in_force()) {
        return;
    }
    const Uncancelled uncancelled;
    const Returns::Scope returning(context.returns);
    const std::vector<PendingDeallocations::Entry> entries = context.pending.take();
    emm_memory *const unfinished = context.unfinished.exchange(nullptr);
    if (entries.empty() && !unfinished) {
        return;
    }
    const driver::RelaxedCapture relaxed(context.driver);
    const uint32_t what = is_alive(context) ? EMM_DEFERRED_RUN : EMM_DEFERRED_DROP;
    if (unfinished) {
        retry_frees(unfinished, what);
    }
    ++counters().flushes;
    if (what == EMM_DEFERRED_DROP) {
        counters().dropped += entries.size();
    }
    for (const PendingDeallocations::Entry &entry : entries) {
        const emm_status status = run(entry, what);
        if (status < EMM_OK) {
            ++counters().failed_deferred;
            observe::describe(status, "a pending free");
            observe::log(EMM_LOG_WARN, observe::last_error()->text);
        }
    }
}

emm_status defer(emm_context &context, emm_deferred function, void *argument,
                 size_t bytes) noexcept {
    bool due = false;
    context.pending.set_total_memory(obtainable_memory(context));
    EMM_TRY(observe::with_memory("no host memory for a pending free", [&] {
        due = context.pending.push({function, argument, bytes});
        return EMM_OK;
    }));
    // A free in the driver waits for all work. Beside a capture a later free flushes.
    if (due && !is_capturing(context)) {
        flush(context);
    }
    return EMM_OK;
}

} // namespace emm::core
