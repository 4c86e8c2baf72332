// Work that is pending until the test lets it end: on hardware a host function that waits, on the
// simulated driver any work, because no work runs there before the program asks twice or waits.
#pragma once

#include "cuda_driver.h"

#include <atomic>
#include <thread>

class PendingWork {
public:
    // Made before the driver is initialised.
    PendingWork() {
        if (cu().simulated()) {
            REQUIRE(cu().configure("progress=lazy") == CUDA_SUCCESS);
        }
    }
    ~PendingWork() { end(); }

    void begin(CUstream stream) {
        REQUIRE(cu().cuLaunchHostFunc(stream, wait, this) == CUDA_SUCCESS);
    }
    void end() { has_ended_ = true; }

private:
    static void wait(void *self) {
        while (!cu().simulated() && !static_cast<PendingWork *>(self)->has_ended_) {
            std::this_thread::yield();
        }
    }
    std::atomic<bool> has_ended_{false};
};
