#pragma once

#include "shadow.h"

#include <cstddef>
#include <cstdint>
#include <map>

namespace simcuda {

// A body of bytes: a device's memory, another process's, or the host's.
struct Store {
    int fd = -1;
    std::byte *bytes = nullptr; // NULL for host memory, where offsets are addresses
    uint64_t size = 0;
    Shadow shadow;
    std::map<uint64_t, unsigned> held; // of another process: what was imported, by its ticket

    std::byte *at(uint64_t offset) const {
        return bytes ? bytes + offset : reinterpret_cast<std::byte *>(offset);
    }
};

} // namespace simcuda
