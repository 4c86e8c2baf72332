// How an importer learns that an export has ended.
//
// A CUDA handle says nothing about its exporter: that may have died, or have freed the memory and
// be using the address for something else. So each export has a liveness socket: one that listens,
// with a name of its own, which the handle tells. It exists exactly as long as the export, because
// the kernel closes it with the process. An importer that can connect to it, and finds a process of
// its own user there, knows that the export lives. The thread of server.h accepts connections, and
// hands out descriptors over them.
//
// An importer in another network namespace (a container with a network of its own) cannot connect:
// it opens a legacy handle unchecked, and one of descriptors not at all.
#pragma once

#include <emm/emm.h>

namespace emm::ipc {

// The socket for an export of this process. The number, never 0, is its handle's generation.
emm_status open_liveness_socket(uint64_t *ret_generation);
void close_liveness_socket(uint64_t generation) noexcept;

// A connection to the socket of the export that `handle` names, whose exporter is of the same user.
// It takes up to `left` nanoseconds, and subtracts what it took.
//   EMM_E_NOT_OWNED       the export has ended
//   EMM_E_INVALID_VALUE   the exporter is another user's
//   EMM_E_NOT_SUPPORTED   it is in another network namespace, or may not be connected to
//   EMM_E_BUSY            there was no room for one more connection: try again
emm_status reach(const emm_ipc_handle &handle, int64_t &left, int *ret_socket);

// Whether the export that `handle` names goes on, and its exporter is of the same user.
emm_status check_liveness(const emm_ipc_handle &handle);

// The refusal of a handle whose export has ended, and of one whose exporter does not answer in
// time.
emm_status fail_ended(const emm_ipc_handle &handle);
emm_status fail_busy(const char *why);

} // namespace emm::ipc
