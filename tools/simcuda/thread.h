#pragma once

#include <cuda.h>

namespace simcuda {

// What the driver keeps for a thread. Trivial, so that calls still work while a thread, or the
// process, is being torn down.
struct Thread {
    static constexpr int deepest = 256;
    CUcontext stack[deepest];
    int depth;
    const char *call;       // the entry being served
    bool per_thread_stream; // it is the variant for which stream 0 is the thread's own
    bool in_callback;       // in a host function or destructor, where CUDA may not be called
    bool spared;            // no fault is injected into its calls
    CUstreamCaptureMode mode;
    uint32_t number; // 1, 2, ... in order of first calls
    char last_race[1024];
};

extern constinit thread_local Thread this_thread;

} // namespace simcuda
