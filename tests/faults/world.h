// The place of a workload: a CUDA context of its own, and the driver's count of its memory.
#pragma once

#include <emm/emm.h>

#include <cuda.h>
#include <string>
#include <vector>

namespace faults {

// A driver entry with its CUDA 12.0 signature, for the test's own use.
#define CU(name) reinterpret_cast<decltype(&::name)>(emm_driver_entry(#name, 12000))

// Ends the program: without this, the test has no subject.
[[noreturn]] void stop(const std::string &why);
void must(bool done, const char *what);

// The memory that the driver has handed out, to all programs.
struct Holdings {
    uint64_t device_bytes = 0, device_blocks = 0, host_bytes = 0, host_blocks = 0;
    bool operator==(const Holdings &) const = default;
};
Holdings holdings();
std::string text_of(const Holdings &holdings);
// On all devices, the driver's memory that no account has; 0 without EMM_LIMIT.
int64_t uncounted_bytes();
uint64_t races();

// A new context, with a manager and two streams. Current on this thread.
class World {
public:
    explicit World(int device = 0);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    emm_context *emm() const { return emm_; }
    CUcontext cuda() const { return cuda_; }
    CUstream known() const { return known_; } // registered
    CUstream other() const { return other_; }
    void retire();

private:
    CUcontext cuda_ = nullptr;
    emm_context *emm_ = nullptr;
    CUstream known_ = nullptr, other_ = nullptr;
    bool retired_ = false;
};

// Memory that another process exports for as long as this object lives. Make it before this process
// has a driver.
class Offer {
public:
    Offer();
    ~Offer();
    Offer(const Offer &) = delete;
    Offer &operator=(const Offer &) = delete;
    bool is_there() const { return status_ == EMM_OK; }
    emm_status status() const { return status_; }
    const emm_ipc_handle &handle() const { return handle_; }

private:
    int pipe_ = -1;
    pid_t exporter_ = 0;
    emm_status status_ = EMM_E_NOT_SUPPORTED;
    emm_ipc_handle handle_ = {};
};

} // namespace faults
