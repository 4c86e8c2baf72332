#include "copies.h"

namespace emm::pool {

Copies::Copies(const ServedContext &context)
    : driver_(context.driver), relaxed_(driver_), result_(relaxed_.result()) {
    if (result_ == CUDA_SUCCESS) {
        result_ = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    }
}

Copies::~Copies() {
    if (stream_ && driver_.cuStreamDestroy(stream_) != CUDA_SUCCESS) {
        driver_.cuStreamDestroy(stream_);
    }
}

void Copies::to_host(void *host, CUdeviceptr device, uint64_t bytes) {
    if (result_ == CUDA_SUCCESS) {
        result_ = driver_.cuMemcpyDtoHAsync(host, device, bytes, stream_);
    }
}

void Copies::to_device(CUdeviceptr device, const void *host, uint64_t bytes) {
    if (result_ == CUDA_SUCCESS) {
        result_ = driver_.cuMemcpyHtoDAsync(device, host, bytes, stream_);
    }
}

// Also after a failure: what has begun uses the memory of both sides.
CUresult Copies::wait() {
    if (stream_) {
        const CUresult waited = driver_.cuStreamSynchronize(stream_);
        const CUresult again =
            waited == CUDA_SUCCESS ? waited : driver_.cuStreamSynchronize(stream_);
        result_ = result_ == CUDA_SUCCESS ? again : result_;
    }
    return result_;
}

} // namespace emm::pool
