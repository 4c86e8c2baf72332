// Sockets between processes that share memory.
//
// Their names are abstract: the kernel takes them away with the process, however it ends, and they
// need no folder that both sides can write to, nor a process id that both know. They are those of a
// network namespace, which a handle names. Any user can see an abstract name and connect to it, so
// both sides ask the kernel whose process the other one is.
#pragma once

#include <emm/emm.h>

namespace emm::core::ipc {

// This process's 128 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[16]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// A listening socket of this process, by number: noted as its own (observe/descriptors.h).
emm_status listen_as(uint64_t number, int backlog, int *ret_socket);

// Connects `socket` to what the exporter with this nonce has at a number. 0, or an errno.
int connect_to(int socket, const uint8_t (&nonce)[16], uint64_t number) noexcept;

// Whether a process of this user is, or was, at the other end.
bool is_own_user(int socket, uint32_t *ret_user) noexcept;

} // namespace emm::core::ipc
