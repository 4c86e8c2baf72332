#include "copies.h"

#include "cuda/relaxed.h"

#include <utility>

namespace emm::pool {

bool Copies::begin() {
    if (result_ == CUDA_SUCCESS && !stream_) {
        result_ = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    }
    return result_ == CUDA_SUCCESS;
}

void Copies::to_host(void *host, CUdeviceptr device, uint64_t bytes) {
    const Relaxed relaxed(driver_);
    if (begin()) {
        result_ = driver_.cuMemcpyDtoHAsync(host, device, bytes, stream_);
    }
}

void Copies::to_device(CUdeviceptr device, const void *host, uint64_t bytes) {
    const Relaxed relaxed(driver_);
    if (begin()) {
        result_ = driver_.cuMemcpyHtoDAsync(device, host, bytes, stream_);
    }
}

CUresult Copies::wait() {
    const Relaxed relaxed(driver_);
    CUresult waited = CUDA_SUCCESS;
    if (stream_ && context_.lives()) { // else its copies are over, and the handle means nothing
        waited = driver_.cuStreamSynchronize(stream_);
        waited = waited == CUDA_SUCCESS ? waited : driver_.cuStreamSynchronize(stream_);
        if (waited == CUDA_SUCCESS && driver_.cuStreamDestroy(stream_) != CUDA_SUCCESS) {
            driver_.cuStreamDestroy(stream_);
        }
    }
    stream_ = waited == CUDA_SUCCESS ? nullptr : stream_;
    const CUresult first = std::exchange(result_, CUDA_SUCCESS);
    return first == CUDA_SUCCESS ? waited : first;
}

} // namespace emm::pool
