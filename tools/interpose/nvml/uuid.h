// How NVML and CUDA know the same device.
#pragma once

#include <stddef.h>

namespace emm::run {

constexpr size_t uuid_bytes = 16;

// Reads a UUID as NVML writes it, "GPU-" or "MIG-" and then 8-4-4-4-12 hexadecimal digits, as the
// bytes that CUDA tells. False: `text` is no UUID, and `ret_uuid` is unchanged.
bool read_uuid(const char *text, unsigned char *ret_uuid);

} // namespace emm::run
