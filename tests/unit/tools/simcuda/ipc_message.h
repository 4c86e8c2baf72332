// The IPC test's messages over a socket to its peer, a process of its own.
#pragma once

#include <cstring>
#include <cuda.h>
#include <sys/socket.h>

struct Request {
    char what = 0; // 'l' legacy handle, 'd' descriptor, 'p' pool, 'c' a second context
    size_t size = 0, offset = 0;
    unsigned char write = 0;
    CUipcMemHandle handle = {};
    CUmemPoolPtrExportData pointer = {};
};

struct Reply {
    CUresult first = CUDA_ERROR_UNKNOWN; // of the import
    CUresult again = CUDA_ERROR_UNKNOWN; // of one more
    CUresult early = CUDA_ERROR_UNKNOWN; // of destroying a pool whose memory is open
    CUresult destroyed = CUDA_ERROR_UNKNOWN;
    bool same_pool = false, same_address = false;
    unsigned char read = 0; // the byte at the offset before the write
};

// A message with a file descriptor; -1: without.
template <typename Message> bool send_message(int socket, const Message &message, int descriptor) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {const_cast<Message *>(&message), sizeof message};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    return sendmsg(socket, &header, 0) == static_cast<ssize_t>(sizeof message);
}

template <typename Message> bool receive_message(int socket, Message &message, int &descriptor) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&message, sizeof message};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket, &header, MSG_WAITALL);
    const cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
    descriptor = -1;
    if (rights) {
        std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    }
    return got == static_cast<ssize_t>(sizeof message);
}
