#include "sharing/wire.h"

#include "observe/descriptors.h"

#include <cstring>
#include <sys/socket.h>

namespace emm::sharing {
namespace {

union Control {
    cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * parts_at_once)];
};

} // namespace

Asked what_is_asked(const void *message, long size) noexcept {
    uint32_t magic = 0;
    if (size >= static_cast<long>(sizeof magic)) {
        std::memcpy(&magic, message, sizeof magic);
    }
    return size == static_cast<long>(sizeof(Request)) && magic == wire_magic ? Asked::parts
           : size == static_cast<long>(sizeof(HandleRequest)) && magic == handle_magic
               ? Asked::handle
               : Asked::nothing;
}

bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept {
    unsigned difference = 0;
    for (size_t i = 0; i < sizeof a; ++i) {
        difference |= static_cast<unsigned>(a[i] ^ b[i]);
    }
    return difference == 0;
}

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
    std::memcpy(all_ + count_, bytes, more * sizeof(int)); // the kernel was given room for no more
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

} // namespace emm::sharing
