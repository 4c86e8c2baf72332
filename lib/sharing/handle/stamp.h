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

// CRC-32: every change of up to four bytes in a row is seen.
uint32_t checksum_of(const void *bytes, size_t size) noexcept;

// The short form of a handle: which export of which process, and half of what only holders of the
// handle know. What it lacks the exporter tells.

bool is_name(const void *bytes) noexcept;

// The name of any handle.
emm_ipc_name write_name(const emm_ipc_handle &handle) noexcept;

// Whether it is whole, and of another process than this.
emm_status check_name(const emm_ipc_name &name);

// A handle with the fields that a name has, the exporter and the export; the others are 0. The
// bytes may be anything.
emm_ipc_handle handle_of(const emm_ipc_name &name) noexcept;

} // namespace emm::sharing
