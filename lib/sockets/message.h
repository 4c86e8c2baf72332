// Messages of one piece, with descriptors, over a connected socket (SOCK_SEQPACKET).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace emm::sockets {

// SCM_RIGHTS carries 253; these are what both processes are short of for a moment.
inline constexpr uint32_t most_descriptors = 64;

// One message that does not wait. The descriptors stay the caller's.
bool send_message(int socket, const void *message, size_t size, const int *descriptors,
                  uint32_t count) noexcept;

// What comes with a message. Whatever the message is, what is not taken is closed.
class Descriptors {
public:
    Descriptors() = default;
    ~Descriptors() { clear(); }
    Descriptors(const Descriptors &) = delete;
    Descriptors &operator=(const Descriptors &) = delete;
    uint32_t count() const noexcept { return count_; }
    int operator[](uint32_t index) const noexcept { return all_[index]; }
    void add(const void *bytes, size_t size) noexcept;
    void close(uint32_t index) noexcept;
    int take(uint32_t index) noexcept { return std::exchange(all_[index], -1); }
    void clear() noexcept;

private:
    int all_[most_descriptors];
    uint32_t count_ = 0;
};

// The size of the message that has come, 0 at the other side's end or for an empty one, or -1 with
// errno; it does not wait for one. There may be fewer descriptors than were sent, if this process
// has no room for more. They are noted as the process's own (observe/descriptors.h).
long receive_message(int socket, void *message, size_t size, Descriptors &ret_descriptors) noexcept;

// The same, and waits for up to `left` nanoseconds, from which it subtracts what it took.
long receive_within(int socket, void *message, size_t size, Descriptors &ret_descriptors,
                    int64_t &left) noexcept;

} // namespace emm::sockets
