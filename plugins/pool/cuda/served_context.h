// The context that a pool serves: the driver's entries, the host's information, the lock under
// which no entry is called, and the error after which nothing is reused.
#pragma once

#include "driver.h"

#include <atomic>

namespace emm::pool {

class ServedContext {
public:
    // `serving` becomes 0 with the first error that ends reuse.
    ServedContext(const emm_host &its_host, const emm_context_info &info,
                  std::atomic<uint64_t> &serving);

    // The handle and addresses of a dead context may belong to another by now. Once the driver has
    // said that the context died, the driver is not asked again: it may crash on such a handle.
    bool lives() const;
    Current make_current() const { return Current(driver, handle, id); }

    CUresult lost() const { return lost_.load(); } // that error, or CUDA_SUCCESS
    bool serves() const { return lost() == CUDA_SUCCESS; }
    uint64_t read_device_bytes() const; // asks the driver
    // Notes the result of any driver call, which may end reuse.
    void note_error(CUresult result);
    emm_status failed(CUresult result, const char *call); // the same; returns the caller's error

    const emm_host &host;
    emm_context *const emm; // for the host
    const CUcontext handle;
    const uint64_t id;
    const int32_t device;
    const Driver driver;
    // The device's memory, or its bound, as last read; UINT64_MAX if the driver does not tell. The
    // pool's lock is held.
    uint64_t device_bytes;
    alignas(64) Mutex mutex; // the pool's lock

private:
    std::atomic<uint64_t> &serving_;
    std::atomic<CUresult> lost_{CUDA_SUCCESS};
    mutable std::atomic<bool> has_died_{false};
};

} // namespace emm::pool
