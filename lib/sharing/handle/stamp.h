#pragma once

#include <emm/emm.h>

#include <cstddef>
#include <cstdint>

namespace emm::sharing {

// Fills what a plugin leaves to the host, for an export of what lies at `ptr`: everything but kind,
// handle, offset, size and exported_size. The generation is there already.
emm_status stamp(const emm_context &context, emm_deviceptr ptr, emm_ipc_handle &handle);

// Whether `handle` is whole, and of a kind that is opened here. No driver and no other process is
// asked.
emm_status check_handle(const emm_ipc_handle &handle);

// Whether a process with this nonce is another one than this.
emm_status check_exporter(const uint8_t *nonce);

// Both: whether a handle may be opened here.
emm_status check_stamp(const emm_ipc_handle &handle);

// CRC-32: every change of up to four bytes in a row is seen.
uint32_t checksum_of(const void *bytes, size_t size) noexcept;

} // namespace emm::sharing
