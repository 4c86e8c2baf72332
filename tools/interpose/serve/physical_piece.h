// Shared by physical.cpp and physical_pause.cpp.
#pragma once

#include "charged.h"
#include "physical.h"

#include <cstdlib>
#include <set>

namespace emm::run {

// Host memory for a copy: pinned for the bus, as far as the host allows and if the current context
// lasts long enough; else ordinary.
class PhysicalMemory::HostCopy {
public:
    HostCopy(size_t size, bool pins) {
        is_pinned_ = pins && ask_driver<&cuMemHostAlloc>(served_cuMemHostAlloc, &bytes_, size,
                                                         0u) == CUDA_SUCCESS;
        bytes_ = is_pinned_ ? bytes_ : std::malloc(size);
    }
    ~HostCopy() {
        if (is_pinned_) {
            ask_driver<&cuMemFreeHost>(served_cuMemFreeHost, bytes_);
        } else {
            std::free(bytes_);
        }
    }
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;
    void *bytes() const { return bytes_; } // NULL: the host has no memory

private:
    void *bytes_ = nullptr;
    bool is_pinned_ = false;
};

// One allocation. emm keeps one handle of the driver's for as long as the program has a handle or a
// mapping.
struct PhysicalMemory::Piece {
    CUmemGenericAllocationHandle handle = 0;  // the program's
    CUmemGenericAllocationHandle drivers = 0; // 0: asleep
    size_t size = 0;
    CUmemAllocationProp properties = {};
    uint64_t flags = 0;
    uint64_t charge = 0; // of the device's account
    unsigned references = 1;
    std::multiset<CUdeviceptr> mapped_at; // twice while another thread ends the first
    CUdeviceptr shown_at = 0;             // while it is copied
    const char *stays = nullptr;          // why it does not sleep
    std::unique_ptr<HostCopy> copy;       // its content, for its return

    CUdevice device() const { return properties.location.id; }
};

inline CUresult release_drivers(CUmemGenericAllocationHandle handle) {
    return ask_driver<&cuMemRelease>(served_cuMemRelease, handle);
}

} // namespace emm::run
