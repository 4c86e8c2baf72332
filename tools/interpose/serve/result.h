// The CUresult that a program gets for emm's status.
#pragma once

#include <emm/emm.h>

#include <cuda.h>

namespace emm::run {

// A struct for a call of emm's to fill, with its size set.
template <class Struct> Struct sized() {
    Struct made = {};
    made.struct_size = sizeof made;
    return made;
}

// The CUresult for a status of emm's. `driver` is the driver's own result behind it, or 0
// (emm_error.driver_result); it is the answer if it says the same as the status.
CUresult result_of(emm_status status, int driver);

// The same for the status of the calling thread's last call.
CUresult result_of(emm_status status);

// Whether emm does not serve this context and the driver does: emm was told that the context ends,
// but it has not ended; or the process has shut emm down.
bool leaves_to_driver(emm_status status);

} // namespace emm::run
