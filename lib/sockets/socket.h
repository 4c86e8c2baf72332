// Sockets by which processes of one user find each other.
//
// Their names are abstract: the kernel takes them away with the process, however it ends, and they
// need no folder that both sides can write to, nor a process id that both know. They are those of a
// network namespace. Any user can see an abstract name and connect to it, so both sides ask the
// kernel for the other's user (user.h). Any user can also bind one: so a name has a random number,
// which nothing that others can read tells before it is bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace emm::sockets {

// CLOCK_MONOTONIC, nanoseconds.
int64_t now() noexcept;

struct Address {
    sockaddr_un address = {};
    socklen_t length = 0;
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

// Of an abstract name, of which 107 bytes at most count.
Address address_of(std::string_view name) noexcept;

// Connects a blocking socket. A queue that is full says nothing of whose it is: it waits up to
// `left` nanoseconds for a place in it, and subtracts what it took. 0, or an errno.
int connect_within(int socket, const Address &address, int64_t &left) noexcept;

// A socket that listens, of this process alone: a child of fork closes it.
//
// A program may close every descriptor that it knows nothing of, and give its number to a file of
// its own. So the number is never used before the kernel has said that it still stands for this
// socket. A listener is never destroyed.
class Listener {
public:
    // 0, or an errno.
    int open(std::string_view name, int backlog) noexcept;

    // The socket's number; -1: there is none, or it has been closed.
    int number() const noexcept;

    void close() noexcept;

private:
    static void leave_to_parent();

    Address address_; // written before the number is
    std::atomic<int> number_{-1};
    Listener *next_ = nullptr; // in the list of all that were opened
    bool listed_ = false;
};

} // namespace emm::sockets
