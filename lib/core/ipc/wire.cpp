#include "core/ipc/wire.h"

#include "observe/descriptors.h"

#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::core::ipc {
namespace {

union Control {
    cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * parts_at_once)];
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

long receive_message(int socket, void *message, size_t size, int *descriptors,
                     uint32_t *ret_count) noexcept {
    Control control = {};
    iovec part = {message, size};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
    const observe::NoFork held;
    const ssize_t got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    uint32_t count = 0;
    for (cmsghdr *each = got >= 0 ? CMSG_FIRSTHDR(&header) : nullptr; each;
         each = CMSG_NXTHDR(&header, each)) {
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) {
            const size_t bytes = each->cmsg_len - CMSG_LEN(0);
            std::memcpy(descriptors + count, CMSG_DATA(each), bytes);
            count += static_cast<uint32_t>(bytes / sizeof(int));
        }
    }
    for (uint32_t i = 0; i < count; ++i) {
        observe::own(descriptors[i]);
    }
    *ret_count = count;
    return got;
}

} // namespace emm::core::ipc
