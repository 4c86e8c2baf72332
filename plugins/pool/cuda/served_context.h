// The context that a pool serves: the driver's entries, what the host has given for it, the lock
// under which none of them is called, and the error after which nothing is reused.
#pragma once

#include "driver.h"

#include <atomic>

namespace emm::pool {

class ServedContext {
public:
    // `serving` becomes 0 with the first error that ends reuse.
    ServedContext(const emm_host &its_host, const emm_context_info &info,
                  std::atomic<uint64_t> &serving);

    // A handle of a context that died may be another's by now, and so may be its addresses. Once
    // the driver has said that it died it is not asked again: it may crash on such a handle.
    bool lives() const;
    Current make_current() const { return Current(driver, handle, id); }

    CUresult lost() const { return lost_.load(); } // that error, or CUDA_SUCCESS
    bool serves() const { return lost() == CUDA_SUCCESS; }
    void note_error(CUresult result);                     // of any driver call: does it end reuse?
    emm_status failed(CUresult result, const char *call); // the same, and the caller's error

    const emm_host &host;
    emm_context *const emm; // for the host
    const CUcontext handle;
    const uint64_t id;
    const int32_t device;
    const Driver driver;
    const uint64_t device_bytes; // what the device has; UINT64_MAX if the driver does not tell
    alignas(64) Mutex mutex;     // the pool's lock

private:
    std::atomic<uint64_t> &serving_;
    std::atomic<CUresult> lost_{CUDA_SUCCESS};
    mutable std::atomic<bool> has_died_{false};
};

} // namespace emm::pool
