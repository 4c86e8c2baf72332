// Copies between the device and host memory, on a stream of their own: no stream of the program
// waits for them, and they leave captures valid. No lock is held, and the context is current.
#pragma once

#include "cuda/served_context.h"

#include <vector>

namespace emm::pool {

class Copies {
public:
    static bool are_served(const Driver &driver) {
        return driver.cuStreamCreate && driver.cuStreamDestroy && driver.cuStreamSynchronize &&
               driver.cuMemcpyDtoHAsync && driver.cuMemcpyHtoDAsync;
    }

    explicit Copies(const ServedContext &context) : context_(context), driver_(context.driver) {}
    Copies(const Copies &) = delete;
    Copies &operator=(const Copies &) = delete;

    // After a failure nothing more is copied until the next wait.
    void to_host(void *host, CUdeviceptr device, uint64_t bytes);
    void to_device(CUdeviceptr device, const void *host, uint64_t bytes);
    // Records an event behind the copies so far, so that they can be waited for alone. False: there
    // is no event.
    bool mark();
    bool await_mark(size_t number); // false: unknown
    bool has_failed() const { return result_ != CUDA_SUCCESS; }
    // Waits until all copies are done. Returns the first failure, or the wait's. If the wait fails,
    // copies may go on, so free neither side's memory before another wait succeeds.
    CUresult wait();
    bool may_be_running() const { return stream_; }

private:
    bool begin();
    void drop_mark(); // the last one

    const ServedContext &context_;
    const Driver &driver_;
    CUstream stream_ = nullptr;  // while copies may be under way
    std::vector<CUevent> marks_; // the same
    CUresult result_ = CUDA_SUCCESS;
};

} // namespace emm::pool
