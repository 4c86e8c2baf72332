// How an importer learns that an export has ended.
//
// A CUDA handle says nothing about its exporter: that may have died, or have freed the memory and
// be using the address for something else. So a process that exports has a liveness socket: one
// that listens, with a name that its handles tell. The kernel closes it with the process. An
// importer that can connect to it, and finds a process of its own user there, asks by an export's
// name whether that goes on. The thread of server.h answers, and hands out descriptors over the
// connections. One socket is enough for a process, because an export must not cost a descriptor.
//
// An importer in another network namespace (a container with a network of its own) cannot connect:
// it opens a legacy handle unchecked, and one of descriptors not at all.
#pragma once

#include <emm/emm.h>

namespace emm::sharing {

// Sees to it that importers can ask this process. The answer, never 0, is a new export's
// generation.
emm_status number_export(uint64_t *ret_generation);

// A connection to the socket of the exporter that `handle` names, which is of the same user. It
// takes up to `left` nanoseconds, and subtracts what it took.
//   EMM_E_NOT_OWNED       the exporter has ended
//   EMM_E_INVALID_VALUE   the exporter is another user's
//   EMM_E_NOT_SUPPORTED   it is in another network namespace, or may not be connected to
//   EMM_E_BUSY            there was no room for one more connection: try again
emm_status reach(const emm_ipc_handle &handle, int64_t &left, int *ret_socket);

// Whether the export that `handle` names goes on, and its exporter is of the same user. Statuses as
// above; EMM_E_BUSY also where no answer came.
emm_status check_liveness(const emm_ipc_handle &handle);

// The refusal of a handle whose export has ended, and of one whose exporter does not answer in
// time.
emm_status fail_ended(const emm_ipc_handle &handle);
emm_status fail_busy(const char *why);

} // namespace emm::sharing
