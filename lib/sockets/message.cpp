#include "sockets/message.h"

#include "observe/descriptors.h"
#include "sockets/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::sockets {
namespace {

union Control {
    cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * most_descriptors)];
};

} // namespace

bool send_message(int socket, const void *message, size_t size, const int *descriptors,
                  uint32_t count) noexcept {
    Control control = {};
    iovec part = {const_cast<void *>(message), size};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (count > 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * count);
        std::memcpy(CMSG_DATA(&control.header), descriptors, sizeof(int) * count);
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

void Descriptors::add(const void *bytes, size_t size) noexcept {
    const auto more = static_cast<uint32_t>(size / sizeof(int));
    std::memcpy(all_ + count_, bytes, more * sizeof(int)); // the kernel had room for no more
    for (uint32_t i = 0; i < more; ++i) {
        observe::own(all_[count_++]);
    }
}

void Descriptors::close(uint32_t index) noexcept {
    if (const int descriptor = take(index); descriptor >= 0) {
        observe::forget_and_close(descriptor);
    }
}

void Descriptors::clear() noexcept {
    while (count_ > 0) {
        close(--count_);
    }
}

long receive_message(int socket, void *message, size_t size,
                     Descriptors &ret_descriptors) noexcept {
    Control control = {};
    iovec part = {message, size};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    ret_descriptors.clear();
    const observe::NoFork held;
    const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    for (cmsghdr *each = got >= 0 ? CMSG_FIRSTHDR(&header) : nullptr; each;
         each = CMSG_NXTHDR(&header, each)) {
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) {
            ret_descriptors.add(CMSG_DATA(each), each->cmsg_len - CMSG_LEN(0));
        }
    }
    return got;
}

// Receiving itself does not wait, because a fork waits for it.
long receive_within(int socket, void *message, size_t size, Descriptors &ret_descriptors,
                    int64_t &left) noexcept {
    long got = -1;
    do {
        pollfd waiting = {socket, POLLIN, 0};
        const int64_t before = now();
        const int timeout = static_cast<int>(std::max<int64_t>(left, 0) / 1'000'000) + 1;
        if (poll(&waiting, 1, timeout) < 0 && errno != EINTR) {
            usleep(1'000); // for want of memory, or in a sandbox
        }
        left -= now() - before;
        got = receive_message(socket, message, size, ret_descriptors);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR) && left > 0);
    return got;
}

} // namespace emm::sockets
