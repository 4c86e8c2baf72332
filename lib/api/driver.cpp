#include "driver/driver.h"

#include "api/check.h"
#include "core/lifecycle/lifecycle.h"
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
