#include "core/lifecycle/device_total.h"

#include "core/lifecycle/host.h"
#include "core/lifecycle/selection.h"
#include "core/memory/call.h"
#include "driver/driver.h"
#include "observe/error.h"
#include "observe/running.h"

namespace emm::core {
namespace {

constexpr const char slot[] = "get_device_total";

emm_status ask(const loader::Selection &selection, int32_t device, size_t device_bytes,
               size_t &ret_total) noexcept {
    const observe::Running running(selection.plugin->running_text(loader::Slot::get_device_total));
    try {
        return conclude(*selection.plugin,
                        selection.plugin->table.get_device_total(&host(), device, device_bytes,
                                                                 selection.option_texts.data(),
                                                                 &ret_total),
                        slot);
    } catch (...) {
        return conclude_exception(*selection.plugin, slot);
    }
}

} // namespace

emm_status device_total(int32_t device, size_t *ret_total) {
    const driver::Driver *driver = nullptr;
    CUdevice handle = 0;
    const loader::Selection *selection = nullptr;
    EMM_TRY(driver::initialize(driver));
    EMM_TRY(driver::find_device(*driver, device, &handle));
    EMM_TRY(current_selection(selection));
    size_t device_bytes = 0, total = 0;
    EMM_TRY(EMM_DRIVER_CALL(*driver, cuDeviceTotalMem, &device_bytes, handle));
    const emm_status status = ask(*selection, device, device_bytes, total);
    EMM_TRY(status);
    if (total == 0 || total > device_bytes) {
        return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                             "plugin {}, {}: expected 1 to {} bytes, found {}",
                             selection->plugin->name, slot, device_bytes, total);
    }
    *ret_total = total;
    return status;
}

} // namespace emm::core
