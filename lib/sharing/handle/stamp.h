#pragma once

#include <emm/emm.h>

#include <cstddef>
#include <cstdint>

namespace emm::sharing {

// Fills every field that a plugin leaves to the host, for an export of the memory at `ptr`: all but
// kind, handle, offset, size, exported_size and generation.
emm_status stamp(const emm_context &context, emm_deviceptr ptr, emm_ipc_handle &handle);

// Whether `handle` is whole, and of a kind that can be opened here. Asks no driver and no other
// process.
emm_status check_handle(const emm_ipc_handle &handle);

// Whether the process with this nonce is a different one from this.
emm_status check_exporter(const uint8_t *nonce);

// CRC-32: detects every change of up to four consecutive bytes.
uint32_t checksum_of(const void *bytes, size_t size) noexcept;

// The short form of a handle: it identifies the process and the export, and has half of the
// handle's secret. The exporter supplies the rest.

bool is_name(const void *bytes) noexcept;

// The name of any handle.
emm_ipc_name write_name(const emm_ipc_handle &handle) noexcept;

// Whether the name is whole, and another process's.
emm_status check_name(const emm_ipc_name &name);

// A handle with only the fields that a name has: the exporter and the export; the others are 0. The
// name may have any bytes.
emm_ipc_handle handle_of(const emm_ipc_name &name) noexcept;

} // namespace emm::sharing
