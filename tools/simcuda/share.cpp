#include "share.h"

#include "simulator.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {
namespace {

constexpr uint64_t ticket_magic = 0x74656b6369746d73; // "smticket"

union Control {
    cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

msghdr message_of(iovec &part, Control &control) {
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    return message;
}

bool send_ticket(int socket, Ticket &ticket, int memory) {
    Control control = {};
    iovec part = {&ticket, sizeof ticket};
    const msghdr message = message_of(part, control);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof memory);
    memcpy(CMSG_DATA(&control.header), &memory, sizeof memory);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof ticket);
}

bool same_file(int a, int b) {
    struct stat left, right;
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

Store *open_foreign(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0 || file.st_size <= 0) {
        return nullptr;
    }
    const auto size = static_cast<uint64_t>(file.st_size);
    const long bytes = syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    if (bytes == -1) {
        return nullptr;
    }
    auto store = std::make_unique<Store>();
    store->fd = descriptor;
    store->size = size;
    store->bytes = reinterpret_cast<std::byte *>(bytes);
    sim().foreign.push_back(std::move(store));
    return sim().foreign.back().get();
}

} // namespace

bool make_share(Ticket ticket, int memory, Share &ret_share) {
    int ends[2];
    ticket.magic = ticket_magic;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    if (!send_ticket(ends[0], ticket, memory)) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    ret_share = {ends[0], ends[1]};
    return true;
}

bool open_share(int descriptor, Ticket::Kind kind, Ticket &ret_ticket, Store *&ret_store) {
    Control control = {};
    Ticket ticket = {};
    iovec part = {&ticket, sizeof ticket};
    msghdr message = message_of(part, control);
    const ssize_t got = recvmsg(descriptor, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (!header || header->cmsg_type != SCM_RIGHTS) {
        return false;
    }
    int memory;
    memcpy(&memory, CMSG_DATA(header), sizeof memory);
    if (got != sizeof ticket || ticket.magic != ticket_magic || ticket.kind != kind) {
        close(memory);
        return false;
    }
    ret_ticket = ticket;
    ret_store = store_of(memory);
    return ret_store != nullptr;
}

void close_unheld(std::vector<int> &keeps) {
    const auto is_over = [](int keep) {
        pollfd waiting = {keep, 0, 0};
        const bool over = poll(&waiting, 1, 0) != 0 && (waiting.revents & POLLHUP);
        return over && close(keep) == 0;
    };
    keeps.erase(std::remove_if(keeps.begin(), keeps.end(), is_over), keeps.end());
}

Store *store_of(int descriptor) {
    for (const auto &device : sim().devices) {
        if (same_file(device->store.fd, descriptor)) {
            close(descriptor);
            return &device->store;
        }
    }
    for (const auto &store : sim().foreign) {
        if (same_file(store->fd, descriptor)) {
            close(descriptor);
            return store.get();
        }
    }
    Store *opened = open_foreign(descriptor);
    if (!opened) {
        close(descriptor);
    }
    return opened;
}

bool is_foreign(const Store *store) {
    for (const auto &each : sim().foreign) {
        if (each.get() == store) {
            return true;
        }
    }
    return false;
}

} // namespace simcuda
