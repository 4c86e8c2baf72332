// How an importer learns that an export has ended.
//
// A CUDA handle says nothing about its exporter: that may have died, or have freed the memory and
// be using the address for something else. So each export has a mark: a listening socket in the
// abstract namespace, named by the exporter's nonce and the export's generation. It is there
// exactly as long as the export, for the kernel takes it away with the process; whoever can connect
// to it knows that the export lives. Nobody accepts: no thread, no file, one descriptor for each
// export.
//
// Abstract names are those of a network namespace. A handle carries the exporter's; an importer in
// another one (a container with a network of its own) cannot look for the mark, and opens
// unchecked.
#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// This process's 128 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[16]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// A mark for an export of this process. 0 or more on success: the number that ends it.
emm_status set_mark(uint64_t generation, int *ret_mark);
void clear_mark(int mark) noexcept;

// Whether the export that `handle` names goes on, and its exporter is of the same user.
emm_status check_mark(const emm_ipc_handle &handle);

// In a forked child: the parent's marks are not to outlive it here.
void leave_marks_to_parent() noexcept;

} // namespace emm::core::ipc
