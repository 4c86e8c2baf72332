#include "served_context.h"

namespace emm::pool {

ServedContext::ServedContext(const emm_host &its_host, const emm_context_info &info,
                             std::atomic<uint64_t> &serving)
    : host(its_host), emm(info.context), handle(info.cuda_context), id(info.context_id),
      device(info.device), driver(its_host), device_bytes(read_device_bytes()), serving_(serving) {}

uint64_t ServedContext::read_device_bytes() const {
    size_t bytes = 0;
    const bool told =
        driver.cuDeviceTotalMem && driver.cuDeviceTotalMem(&bytes, device) == CUDA_SUCCESS;
    return told ? bytes : UINT64_MAX;
}

void ServedContext::note_error(CUresult result) {
    if (is_sticky(result) || is_gone(result)) {
        CUresult none = CUDA_SUCCESS;
        lost_.compare_exchange_strong(none, result);
        serving_.store(0, std::memory_order_relaxed);
    }
}

emm_status ServedContext::failed(CUresult result, const char *call) {
    note_error(result);
    emm_status status = EMM_E_DRIVER;
    const char *consequence = "";
    if (is_sticky(result)) {
        status = EMM_E_DEVICE_LOST;
        consequence = "; the device is lost, and no memory is reused";
    } else if (is_gone(result)) {
        status = EMM_E_RETIRED;
        consequence = "; the context or the driver has ended";
    }
    return emm_failf(&host, status, result, "pool: %s failed: %s (%d)%s", call,
                     cuda::error_name(driver, result), int(result), consequence);
}

bool ServedContext::lives() const {
    if (!has_died_.load() && !driver.is_alive(handle, id)) {
        has_died_.store(true);
    }
    return !has_died_.load();
}

} // namespace emm::pool
