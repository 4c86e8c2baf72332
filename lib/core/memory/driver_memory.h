#pragma once

#include <emm/emm.h>

// Memory that the program takes from the driver itself. The device's account covers it along with
// the managers' memory.
namespace emm::core {

// Like the functions of emm.h. `caller` is for reports.
emm_status take_driver_memory(const emm_driver_memory &memory, const void *caller,
                              uint64_t &ret_id);
emm_status keep_driver_memory(uint64_t id, CUmemPoolHandle_st *pool) noexcept;
emm_status give_driver_memory(uint64_t id) noexcept;
emm_status device_account(int32_t device, emm_device_account &ret_account);

} // namespace emm::core
