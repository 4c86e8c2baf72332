// The descriptors of this process alone: sockets by which others know that an export still exists,
// memory on its way between processes, the event log's files. A forked child closes them, because
// it must not keep alive what its parent ends. (A child that calls exec has none of them either:
// they are made close-on-exec.)
#pragma once

#include <cstddef>
#include <string_view>

namespace emm::observe {

// While one lives, fork waits. So making and noting a descriptor is one step, and so is forgetting
// and closing it: a child knows all that it has. Inside, call no plugin, do not wait, and take no
// memory, because a forking thread may hold the locks for that. If that happens all the same, fork
// waits for 2 s and goes on.
class NoFork {
public:
    NoFork() noexcept;
    ~NoFork();
    NoFork(const NoFork &) = delete;
    NoFork &operator=(const NoFork &) = delete;
};

// Notes a descriptor, within the NoFork that it was made in. False: its number is too high, and the
// caller must close it.
bool own(int descriptor) noexcept;

// No longer notes a descriptor, because its number stands for another file by now.
void forget_descriptor(int descriptor) noexcept;

// Closes a descriptor, noted or not.
void forget_and_close(int descriptor) noexcept;

// Notes the descriptor that `make` returns, if any. -1 with errno if `make` fails.
int own_made(int made) noexcept;
template <class Make> int make_own(Make make) noexcept {
    const NoFork held;
    return own_made(make());
}

// The first bytes of a small file, up to `size`, in `bytes`; empty if it cannot be read.
std::string_view read_start(const char *path, char *bytes, size_t size) noexcept;

// For the fork handlers: before fork, after it in the parent, after it in the child. If `closing`,
// the child closes the noted descriptors.
void hold_descriptors() noexcept;
void release_descriptors() noexcept;
void leave_descriptors_to_parent(bool closing) noexcept;

} // namespace emm::observe
