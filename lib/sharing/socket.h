// Sockets between processes that share memory.
//
// Their names are abstract: the kernel takes them away with the process, however it ends, and they
// need no folder that both sides can write to, nor a process id that both know. They are those of a
// network namespace, which a handle names. Any user can see an abstract name and connect to it, so
// both sides ask the kernel for the other's user. Any user can also bind one: so a process's name
// is a random number of its own, which nothing that others can read tells before the name is bound.
#pragma once

#include <emm/emm.h>

namespace emm::sharing {

// This process's 64 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[8]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// Where an export is, seen from here.
enum class Sight { here, elsewhere, unknown };
Sight sight_of(uint32_t exporter, uint32_t own) noexcept;

// The listening socket of this process, under its nonce. It is noted as the process's own
// (observe/descriptors.h).
emm_status listen_for_importers(int backlog, int *ret_socket);

// Connects `socket` to the exporter with this nonce. 0, or an errno.
int connect_to(int socket, const uint8_t (&nonce)[8]) noexcept;

// Whether a process of this user is, or was, at the other end (user.h); if not, a sentence about an
// exporter of another user.
emm_status check_user(int socket);

} // namespace emm::sharing
