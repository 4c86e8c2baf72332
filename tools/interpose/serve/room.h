// Room on a device for memory that the driver itself gives to the program.
#pragma once

#include <cuda.h>

namespace emm::run {

constexpr CUdevice every_device = -1;

// Managers give their caches back to the driver: those of the device's contexts, or of all
// contexts. In a deferred section a manager returns nothing.
void give_back_caches(CUdevice device);

// Asks the caches of --release, as after a failed request for so many bytes. True: they were asked,
// so the managers may have more to give back.
bool ask_programs_caches(CUdevice device, size_t bytes);

// Calls `call`, which has the driver take memory. If the driver has none, caches give back and the
// driver is asked again, at most twice. Gives the last answer.
template <class Call> CUresult with_room(CUdevice device, size_t bytes, Call call) {
    CUresult result = call();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) [[unlikely]] {
        give_back_caches(device);
        result = call();
        if (result == CUDA_ERROR_OUT_OF_MEMORY && ask_programs_caches(device, bytes)) {
            give_back_caches(device);
            result = call();
        }
    }
    return result;
}

} // namespace emm::run
