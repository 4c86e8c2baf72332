// How an importer learns that an export has ended.
//
// A CUDA handle says nothing about its exporter: that may have died, or have freed the memory and
// be using the address for something else. So each export has a mark: a listening socket named by
// the exporter's nonce and the export's generation. It is there exactly as long as the export, for
// the kernel takes it away with the process; whoever can connect to it knows that the export lives.
// Nobody accepts: no thread, no file, one descriptor for each export.
//
// An importer in another network namespace (a container with a network of its own) cannot look for
// the mark: it opens a legacy handle unchecked, and one of descriptors not at all.
#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// A mark for an export of this process. 0 or more on success: the number that ends it.
emm_status set_mark(uint64_t generation, int *ret_mark);
void clear_mark(int mark) noexcept;

// Whether the export that `handle` names goes on, and its exporter is of the same user.
emm_status check_mark(const emm_ipc_handle &handle);

// What a handle is refused with whose export does not go on.
emm_status fail_ended(const emm_ipc_handle &handle);

} // namespace emm::core::ipc
