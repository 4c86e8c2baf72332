// The descriptors that are this process's alone: sockets by which others know that an export goes
// on, memory on its way from one process to another, the event log's files. A forked child closes
// them: it must not keep alive what its parent ends. (A child that calls exec has none of them
// either: they are made close-on-exec.)
#pragma once

#include <cstddef>
#include <string_view>

namespace emm::observe {

// While one lives, fork waits. Making a descriptor and noting it is one step that way, and so is
// forgetting and closing it: a child knows all that it has. Within it: no plugin, nothing that
// waits, no memory taken, because what a fork has locked before it came here may be needed for
// that. Should it be so all the same, fork waits for 2 s and goes on.
class NoFork {
public:
    NoFork() noexcept;
    ~NoFork();
    NoFork(const NoFork &) = delete;
    NoFork &operator=(const NoFork &) = delete;
};

// Notes a descriptor, in the NoFork that it was made in. False: its number is too high, and the
// caller is to close it.
bool own(int descriptor) noexcept;

// Closes one that was noted, or was not.
void forget_and_close(int descriptor) noexcept;

// `make` answers a descriptor or -1; that is noted. -1 with errno: there is none.
int own_made(int made) noexcept;
template <class Make> int make_own(Make make) noexcept {
    const NoFork held;
    return own_made(make());
}

// The first bytes of a small file, up to `size`, in `bytes`; empty: it cannot be read.
std::string_view read_start(const char *path, char *bytes, size_t size) noexcept;

// For the fork handlers: before fork, after it in the parent, after it in the child. The child
// closes what is noted if `closing`.
void hold_descriptors() noexcept;
void release_descriptors() noexcept;
void leave_descriptors_to_parent(bool closing) noexcept;

} // namespace emm::observe
