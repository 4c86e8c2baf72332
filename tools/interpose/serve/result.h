// What a program gets for what emm answers.
#pragma once

#include <emm/emm.h>

#include <cuda.h>

namespace emm::run {

// A struct for a call of emm's to fill, which says how large it is.
template <class Struct> Struct sized() {
    Struct made = {};
    made.struct_size = sizeof made;
    return made;
}

// The CUresult for a status of emm's. `driver` is the driver's own behind it, or 0
// (emm_error.driver_result); it is the answer where it says the same.
CUresult result_of(emm_status status, int driver);

// The same for the status of the calling thread's last call.
CUresult result_of(emm_status status);

// Whether emm does not serve this context, and the driver does: emm was told that it ends, but it
// has not; or the process has shut emm down.
bool leaves_to_driver(emm_status status);

} // namespace emm::run
