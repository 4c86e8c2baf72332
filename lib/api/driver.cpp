#include "driver/driver.h"

#include "api/check.h"
#include "core/lifecycle/lifecycle.h"
#include "core/memory/driver_memory.h"
#include "driver/account.h"
#include "driver/meter.h"

using namespace emm;

emm_status emm_get_driver(emm_driver_info *ret_info) {
    EMM_REFUSE_CHILD();
    EMM_REQUIRE_SIZED(ret_info);
    EMM_TRY(core::admit_process());
    const driver::Driver *driver = nullptr;
    EMM_TRY(api::guarded([&] { return driver::initialize(driver); }));
    int count = 0;
    EMM_TRY(EMM_DRIVER_CALL(*driver, cuDeviceGetCount, &count));
    auto info = observe::sized<emm_driver_info>();
    info.cuda_version = driver->cuda_version;
    info.simulated = driver->simulated;
    info.device_count = static_cast<uint32_t>(count);
    info.path = driver->path.c_str();
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

emm_function emm_driver_entry(const char *name, int32_t cuda_version) {
    return name ? driver::entry(name, cuda_version) : nullptr;
}

emm_status emm_get_driver_usage(emm_driver_usage *ret_usage) {
    EMM_COUNT_CALL();
    EMM_REQUIRE_SIZED(ret_usage);
    return api::guarded([&]() -> emm_status {
        auto usage = observe::sized<emm_driver_usage>();
        driver::read_usage(usage);
        emm_copy_sized(ret_usage, &usage);
        return EMM_OK;
    });
}

emm_status emm_foreach_driver_count(emm_driver_count_visitor visit, void *user_data) {
    EMM_ENTER(visit);
    return api::guarded([&]() -> emm_status {
        driver::visit_calls(
            [&](const char *name, uint64_t calls) { return visit(name, calls, user_data) == 0; });
        return EMM_OK;
    });
}

emm_status emm_foreach_driver_call(emm_driver_call_visitor visit, void *user_data) {
    EMM_ENTER(visit);
    return api::guarded([&]() -> emm_status {
        driver::visit_calls([&](const char *name, uint64_t calls) {
            visit(name, calls, user_data);
            return true;
        });
        return EMM_OK;
    });
}

emm_status emm_get_device_account(int32_t device, emm_device_account *ret_account) {
    EMM_REFUSE_CHILD();
    EMM_REQUIRE_SIZED(ret_account);
    return api::guarded([&]() -> emm_status {
        const driver::Driver *driver = nullptr;
        EMM_TRY(driver::initialize(driver));
        CUdevice found = 0;
        EMM_TRY(driver::find_device(*driver, device, &found));
        emm_device_account account = {};
        EMM_TRY(core::device_account(device, account));
        emm_copy_sized(ret_account, &account);
        return EMM_OK;
    });
}

emm_status emm_take_driver_memory(const emm_driver_memory *memory, uint64_t *ret_id) {
    EMM_ENTER(memory, ret_id);
    EMM_REQUIRE_SIZED(memory);
    const void *const caller = __builtin_return_address(0);
    auto known = observe::sized<emm_driver_memory>();
    emm_copy_sized(&known, memory);
    // Each look at the figures asks every recorded pool for its size. So pools are recorded only if
    // memory is counted.
    if (known.kind == EMM_MEMORY_POOL && known.pool && !driver::is_counted()) {
        *ret_id = 0;
        return EMM_OK;
    }
    return api::guarded([&]() -> emm_status {
        const driver::Driver *driver = nullptr;
        EMM_TRY(driver::initialize(driver));
        CUdevice found = 0;
        EMM_TRY(driver::find_device(*driver, known.device, &found));
        if (known.kind >= driver::kinds) {
            return observe::refuse("emm_take_driver_memory: kind: expected EMM_MEMORY_*, found {}",
                                   known.kind);
        }
        return core::take_driver_memory(known, caller, *ret_id);
    });
}

emm_status emm_keep_driver_memory(uint64_t id, CUmemPoolHandle_st *pool) {
    EMM_REFUSE_CHILD();
    return core::keep_driver_memory(id, pool);
}

emm_status emm_give_driver_memory(uint64_t id) {
    EMM_REFUSE_CHILD();
    return core::give_driver_memory(id);
}
