// Sockets between processes that share memory.
//
// Their names are abstract: the kernel takes them away with the process, however it ends, and they
// need no folder that both sides can write to, nor a process id that both know. They are those of a
// network namespace, which a handle names. Any user can see an abstract name and connect to it, so
// both sides ask the kernel for the other's user. Any user can also bind one: so each export's name
// is a fresh random number, which nothing that others can read foretells.
#pragma once

#include <emm/emm.h>

namespace emm::ipc {

// This process's 64 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[8]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// Where an export is, seen from here.
enum class Sight { here, elsewhere, unknown };
Sight sight_of(uint32_t exporter, uint32_t own) noexcept;

// A listening socket of this process under a new number, which has its highest bit set. It
// is noted as the process's own (observe/descriptors.h).
emm_status listen_anew(int backlog, uint64_t *ret_number, int *ret_socket);

// Connects `socket` to what the exporter with this nonce has at a number. 0, or an errno.
int connect_to(int socket, const uint8_t (&nonce)[8], uint64_t number) noexcept;

// Whether a process of this user is, or was, at the other end (user.h); if not, a sentence about an
// exporter of another user.
emm_status check_user(int socket);

} // namespace emm::ipc
