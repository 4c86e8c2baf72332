// Sockets by which processes of one user find each other.
//
// Their names are abstract: the kernel removes them with the process, however that ends. They need
// no folder that both sides can write to, and no process id that both know. A name is valid within
// its network namespace. Any user can see an abstract name and connect to it, so both sides ask the
// kernel for the other's user (user.h). Any user can also bind a name first. So each name contains
// a random number, which others cannot read before the name is bound.
#pragma once

#include "sockets/address.h"

#include <atomic>

namespace emm::sockets {

// Connects a blocking socket. A full queue may be any user's: this waits up to `left` nanoseconds
// for a place in it, and subtracts the time taken. Returns 0, or an errno.
int connect_within(int socket, const Address &address, int64_t &left) noexcept;

// A listening socket of this process alone: a forked child closes it.
//
// A program may close descriptors that it does not know, and reuse the number for a file of its
// own. So before each use of the number, the kernel is asked whether it still stands for this
// socket. If the kernel does not tell, the number is used, and not closed. A listener is never
// destroyed.
class Listener {
public:
    // Returns 0, or an errno.
    int open(std::string_view name, int backlog) noexcept;

    // The socket's number; -1: it was not opened, or has been closed.
    int number() const noexcept;

    void close() noexcept;

private:
    enum class Owner { listener, other, unknown };

    static void leave_to_parent();
    Owner owner_of(int socket) const noexcept;

    Address address_; // written before the number is
    std::atomic<int> number_{-1};
    Listener *next_ = nullptr; // in the list of all opened listeners
    bool listed_ = false;
};

} // namespace emm::sockets
