// The calling thread's capture mode, relaxed around driver calls that would otherwise invalidate a
// capture in global mode (cuThreadExchangeStreamCaptureMode). An exchange is a driver call too. So
// a slow path with many such calls puts one section around all, and pays for two exchanges:
//
//   RelaxedSection   [ - - - - - - - - - - - - - - - - - - - - - - - ]
//   Relaxed                 [ query ]  [ query ]      [ map ]
//   the mode         global ^ relaxed                                ^ global
#pragma once

#include "driver.h"

namespace emm::pool {

// Small and zero-initialized, because a process has little static thread-local storage.
struct ThreadMode {
    uint32_t sections = 0;
    uint8_t other = 0; // the program's mode, if it is exchanged
    bool exchanged = false;
};

// The first Relaxed inside exchanges the mode; the end of the thread's outermost section restores
// it. Begin and end a section with no lock held, and run no code of the program inside.
class RelaxedSection {
public:
    explicit RelaxedSection(const Driver &driver) : driver_(driver) { mode_.sections++; }
    ~RelaxedSection() {
        if (--mode_.sections == 0 && mode_.exchanged) {
            exchange();
        }
    }
    RelaxedSection(const RelaxedSection &) = delete;
    RelaxedSection &operator=(const RelaxedSection &) = delete;

protected:
    CUresult relax() {
        if (mode_.exchanged) {
            return CUDA_SUCCESS;
        }
        mode_.other = uint8_t(CU_STREAM_CAPTURE_MODE_RELAXED);
        return exchange();
    }

private:
    // If this fails, the thread's mode is unchanged.
    CUresult exchange() {
        auto mode = CUstreamCaptureMode(mode_.other);
        const CUresult result = cuda::exchange_capture_mode(driver_, mode);
        if (result == CUDA_SUCCESS) {
            mode_.other = uint8_t(mode);
            mode_.exchanged = !mode_.exchanged;
        }
        return result;
    }

    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local ThreadMode mode_;

    const Driver &driver_;
};

// While it lives, and if result() is CUDA_SUCCESS, driver calls of this thread invalidate no
// capture of any stream.
class Relaxed : private RelaxedSection {
public:
    explicit Relaxed(const Driver &driver) : RelaxedSection(driver), result_(relax()) {}

    // If not CUDA_SUCCESS, the mode is the program's: leave out calls that may be left out.
    CUresult result() const { return result_; }

private:
    CUresult result_;
};

} // namespace emm::pool
