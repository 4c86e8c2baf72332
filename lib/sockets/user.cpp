#include "sockets/user.h"

#include "observe/descriptors.h"

#include <algorithm>
#include <charconv>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::sockets {
namespace {

uint32_t overflow_user() noexcept {
    char bytes[16];
    const std::string_view text =
        observe::read_start("/proc/sys/kernel/overflowuid", bytes, sizeof bytes);
    uint32_t user = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), user);
    return error == std::errc() ? user : 65534; // the kernel's own choice
}

} // namespace

bool is_same_user(uint32_t peer, uint32_t own, uint32_t overflow, bool all_are_mapped) noexcept {
    return peer == own && (own != overflow || all_are_mapped);
}

bool maps_all_users(std::string_view uid_map) noexcept {
    uint32_t numbers[3] = {1, 1, 0};
    const char *at = uid_map.data();
    const char *const end = at + uid_map.size();
    for (uint32_t &each : numbers) {
        at = std::find_if(at, end, [](char byte) { return byte != ' '; });
        at = std::from_chars(at, end, each).ptr;
    }
    return numbers[0] == 0 && numbers[1] == 0 && numbers[2] == UINT32_MAX;
}

bool is_this_user(uint32_t user) noexcept {
    const uint32_t own = geteuid();
    if (user != own) {
        return false;
    }
    const uint32_t overflow = overflow_user();
    char bytes[128];
    return is_same_user(user, own, overflow,
                        own == overflow && maps_all_users(observe::read_start(
                                               "/proc/self/uid_map", bytes, sizeof bytes)));
}

bool is_own_user(int socket, uint32_t *ret_user) noexcept {
    ucred peer = {};
    socklen_t length = sizeof peer;
    const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    *ret_user = known ? peer.uid : unknown_user;
    return known && is_this_user(peer.uid);
}

} // namespace emm::sockets
