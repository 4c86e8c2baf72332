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

bool Copies::mark() {
    const Relaxed relaxed(driver_);
    CUevent event = nullptr;
    marks_.reserve(marks_.size() + 1);
    if (!begin() || driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return false;
    }
    marks_.push_back(event);
    if (driver_.cuEventRecord(event, stream_) != CUDA_SUCCESS) {
        drop_mark();
        return false;
    }
    return true;
}

bool Copies::await_mark(size_t number) {
    const Relaxed relaxed(driver_);
    return driver_.cuEventSynchronize(marks_[number]) == CUDA_SUCCESS ||
           driver_.cuEventSynchronize(marks_[number]) == CUDA_SUCCESS;
}

void Copies::drop_mark() {
    if (driver_.cuEventDestroy(marks_.back()) != CUDA_SUCCESS) {
        driver_.cuEventDestroy(marks_.back());
    }
    marks_.pop_back();
}

CUresult Copies::wait() {
    const Relaxed relaxed(driver_);
    CUresult waited = CUDA_SUCCESS;
    if (!context_.lives()) { // its copies are over, and the handles mean nothing
        marks_.clear();
    } else if (stream_) {
        while (!marks_.empty()) {
            drop_mark();
        }
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
