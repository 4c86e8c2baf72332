#pragma once

#include "shadow.h"

#include <cstddef>
#include <cstdint>

namespace simcuda {

// A body of bytes: a device's memory, another process's, or the host's.
struct Store {
    int fd = -1;
    std::byte *bytes = nullptr; // NULL for host memory, where offsets are addresses
    uint64_t size = 0;
    Shadow shadow;

    std::byte *at(uint64_t offset) const {
        return bytes ? bytes + offset : reinterpret_cast<std::byte *>(offset);
    }
};

} // namespace simcuda
