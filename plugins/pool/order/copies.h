// Copies between the device and host memory, on a stream of their own: no stream of the program
// waits for them, and no capture notices. No lock is held, and the context is current.
#pragma once

#include "cuda/relaxed.h"
#include "cuda/served_context.h"

namespace emm::pool {

class Copies {
public:
    static bool are_served(const Driver &driver) {
        return driver.cuStreamCreate && driver.cuStreamDestroy && driver.cuStreamSynchronize &&
               driver.cuMemcpyDtoHAsync && driver.cuMemcpyHtoDAsync;
    }

    explicit Copies(const ServedContext &context);
    ~Copies();
    Copies(const Copies &) = delete;
    Copies &operator=(const Copies &) = delete;

    // The first failure stays, and nothing is copied after it.
    void to_host(void *host, CUdeviceptr device, uint64_t bytes);
    void to_device(CUdeviceptr device, const void *host, uint64_t bytes);
    CUresult wait(); // until all of them are done

private:
    const Driver &driver_;
    const Relaxed relaxed_;
    CUstream stream_ = nullptr;
    CUresult result_;
};

} // namespace emm::pool
