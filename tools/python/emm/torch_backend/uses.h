#pragma once

#include "types.h"

#include <cuda_runtime_api.h>

namespace emm::torch_backend {

// While it lives, calls of this thread do not end the captures of others. It never throws: memory
// is also freed when the driver is gone.
class RelaxedCapture {
public:
    RelaxedCapture() : known_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {}

    ~RelaxedCapture() {
        if (known_) {
            (void)cudaThreadExchangeStreamCaptureMode(&mode_);
        }
    }

    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    bool known_;
};

// What some streams held when it was recorded. Made and asked in any thread, while others capture.
class Uses {
public:
    Uses() = default;
    Uses(Uses &&other) noexcept { events_.swap(other.events_); }

    Uses &operator=(Uses &&other) noexcept {
        events_.swap(other.events_);
        return *this;
    }

    ~Uses() {
        for (cudaEvent_t event : events_) {
            (void)cudaEventDestroy(event);
        }
    }

    // False: a stream captures, or cannot be asked.
    bool record(const std::vector<Stream> &streams) {
        for (Stream stream : streams) {
            cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
            cudaEvent_t event = nullptr;
            if (cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
                status != cudaStreamCaptureStatusNone ||
                cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) {
                return failed();
            }
            events_.push_back(event);
            if (cudaEventRecord(event, stream) != cudaSuccess) {
                return failed();
            }
        }
        return true;
    }

    bool are_over() const {
        for (cudaEvent_t event : events_) {
            if (cudaEventQuery(event) != cudaSuccess) {
                return failed();
            }
        }
        return true;
    }

private:
    // The runtime's error is not PyTorch's business.
    static bool failed() {
        (void)cudaGetLastError();
        return false;
    }

    std::vector<cudaEvent_t> events_;
};

} // namespace emm::torch_backend
