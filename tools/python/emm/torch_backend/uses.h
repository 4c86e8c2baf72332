#pragma once

#include "types.h"

#include <cuda_runtime_api.h>

namespace emm::torch_backend {

// While this object lives, calls of this thread do not end the captures of other threads. It never
// throws: memory is also freed when the driver is gone.
class RelaxedCapture {
public:
    RelaxedCapture() : known_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {}

    ~RelaxedCapture() {
        if (known_) {
            (void)cudaThreadExchangeStreamCaptureMode(&mode_);
        }
    }

    // False: the driver is gone, or cannot be asked.
    bool has_driver() const { return known_; }

    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    bool known_;
};

// The work on some streams up to the time of record(). Any thread may make and ask one, while
// others capture.
class Uses {
public:
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
            events_.emplace_back(event);
            if (cudaEventRecord(event, stream) != cudaSuccess) {
                return failed();
            }
        }
        return true;
    }

    void wait() const {
        for (const Event &event : events_) {
            (void)cudaEventSynchronize(event.get());
        }
    }

    bool are_over() const {
        for (const Event &event : events_) {
            if (cudaEventQuery(event.get()) != cudaSuccess) {
                return failed();
            }
        }
        return true;
    }

private:
    struct Destroy {
        void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
    };
    using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

    // PyTorch must not see the runtime's error.
    static bool failed() {
        (void)cudaGetLastError();
        return false;
    }

    std::vector<Event> events_;
};

} // namespace emm::torch_backend
