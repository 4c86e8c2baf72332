// Work that is pending until the test lets it end: on hardware a host function that waits, on the
// simulated driver any work, for there nothing runs before somebody asks twice or waits.
#pragma once

#include "cuda_driver.h"

#include <atomic>
#include <thread>

class Gate {
public:
    // Made before the driver is initialised.
    Gate() {
        if (cu().simulated()) {
            REQUIRE(cu().configure("progress=lazy") == CUDA_SUCCESS);
        }
    }
    ~Gate() { open(); }

    void close(CUstream stream) {
        REQUIRE(cu().cuLaunchHostFunc(stream, wait, this) == CUDA_SUCCESS);
    }
    void open() { open_ = true; }

private:
    static void wait(void *self) {
        while (!cu().simulated() && !static_cast<Gate *>(self)->open_) {
            std::this_thread::yield();
        }
    }
    std::atomic<bool> open_{false};
};
