// Addresses of sockets, and the clock of their time-outs. The tool uses them and links no libemm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace emm::sockets {

// CLOCK_MONOTONIC, nanoseconds.
inline int64_t now() noexcept {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec;
}

struct Address {
    sockaddr_un address = {};
    socklen_t length = 0;
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

// The address of an abstract name, of which at most 107 bytes count.
inline Address address_of(std::string_view name) noexcept {
    Address address;
    address.address.sun_family = AF_UNIX;
    const size_t size = std::min(name.size(), sizeof address.address.sun_path - 1);
    std::memcpy(address.address.sun_path + 1, name.data(), size); // the first byte is 0
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
    return address;
}

} // namespace emm::sockets
