// The user of the process at the other end of a socket, or of a file: asked from the kernel, not
// from the peer.
#pragma once

#include <cstdint>
#include <string_view>

namespace emm::sockets {

// Whether a user id, as the kernel reports it here, can mean only this process's user. In a user
// namespace, all unmapped users share one overflow id. So that id counts only if all are mapped.
bool is_same_user(uint32_t peer, uint32_t own, uint32_t overflow, bool all_are_mapped) noexcept;

// Whether a user namespace maps every user, by its uid_map.
bool maps_all_users(std::string_view uid_map) noexcept;

// Whether `user` is this process's user, by the rule above.
bool is_this_user(uint32_t user) noexcept;

// Whether a process of this user is, or was, at the other end. If the kernel does not tell,
// *ret_user is `unknown_user`, and errno has the reason.
constexpr uint32_t unknown_user = ~0u;
bool is_own_user(int socket, uint32_t *ret_user) noexcept;

} // namespace emm::sockets
