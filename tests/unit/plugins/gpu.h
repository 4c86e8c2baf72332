// A CUDA context of a test's own on the driver that emm uses, with helpers. Plugins are tested as
// an application sees them: through emm/emm.h, chosen by EMM_PLUGIN.
#pragma once

#include "catch.h"
#include "unit/answers.h"

#include <emm/cuda.h>
#include <emm/emm.h>
#include <simcuda.h>

#include <string>

// A driver entry with its CUDA 12.0 signature.
#define CU(name) reinterpret_cast<EMM_CUDA_TYPE(name)>(emm_driver_entry(#name, EMM_CUDA_SIGNATURES))

class Gpu {
public:
    Gpu();
    ~Gpu();
    Gpu(const Gpu &) = delete;
    Gpu &operator=(const Gpu &) = delete;

    emm_context *emm() const { return emm_; }
    CUcontext cuda() const { return cuda_; }
    CUstream make_stream(unsigned flags = CU_STREAM_NON_BLOCKING) const;

    emm_deviceptr allocate(size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    emm_status free(emm_deviceptr ptr, size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    emm_stats stats() const;

    // The context dies without emm being told.
    void kill();
    // The same, without retiring it.
    void abandon();

private:
    CUcontext cuda_ = nullptr;
    emm_context *emm_ = nullptr;
};

// How often memory was used too early, as far as the driver can tell: a real driver cannot.
uint64_t races();
// The memory that the device has handed out, to all programs; with managed memory, which the
// simulated driver takes from the host.
uint64_t device_bytes();
// The most bytes that one manager can have.
size_t most_bytes();

// Only on the simulated driver.
uint64_t host_bytes(); // pinned, registered and managed memory
uint64_t objects();    // streams, events, pools and address ranges
uint64_t calls_of(const char *entry);
void fail_next(const char *fault);

std::string plugin_name();

// Writes `value` all over the block, in stream order.
void fill(emm_deviceptr ptr, size_t size, unsigned value, CUstream stream);
unsigned last_word(emm_deviceptr ptr, size_t size);
void synchronize(CUstream stream);

// Frees most of the memory in a call that returns. Then requests it while another thread gives it
// back and waits for the device.
void request_what_another_thread_gives_back();
