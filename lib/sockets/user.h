// Whose process is at the other end of a socket, or whose a file is: the kernel is asked, not the
// peer.
#pragma once

#include <cstdint>
#include <string_view>

namespace emm::sockets {

// Whether a user id, as the kernel tells it here, can mean this process's user and no other. In a
// user namespace all users that it does not map have the one overflow id.
bool is_same_user(uint32_t peer, uint32_t own, uint32_t overflow, bool all_are_mapped) noexcept;

// Whether a user namespace maps every user, by its uid_map.
bool maps_all_users(std::string_view uid_map) noexcept;

// The same of this process.
bool is_this_user(uint32_t user) noexcept;

// Whether a process of this user is, or was, at the other end.
bool is_own_user(int socket, uint32_t *ret_user) noexcept;

} // namespace emm::sockets
