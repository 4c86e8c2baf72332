// Where an export comes from, as its handle tells: the process, by a random number, which is also
// the name of the socket at which that process is asked, and its network namespace.
#pragma once

#include "sockets/socket.h"

#include <emm/emm.h>

#include <string>

namespace emm::sharing {

// This process's 64 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[8]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// Where an export is, seen from here.
enum class Sight { here, elsewhere, unknown };
Sight sight_of(uint32_t exporter, uint32_t own) noexcept;

// Of the socket of the process with this nonce.
std::string socket_name(const uint8_t *nonce);

} // namespace emm::sharing
