// The listening socket by which `emm top` finds this process.
//
// A program may close every descriptor that it knows nothing of, and give its number to a file of
// its own. So the number is never used before the kernel has said that it still stands for this
// socket, in a forked child, too, which closes what its parent listens at.
#pragma once

namespace emm::monitor {

// Binds a fresh name and listens. False: it cannot be had, which is logged.
bool open_socket() noexcept;

// The socket's number; -1: there is none, or it has been closed.
int own_socket() noexcept;

void close_socket() noexcept;

} // namespace emm::monitor
