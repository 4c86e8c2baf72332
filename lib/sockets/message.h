// Single messages, with descriptors, over a connected socket (SOCK_SEQPACKET).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace emm::sockets {

// The most descriptors in a message. SCM_RIGHTS carries 253, but both processes need a number for
// each at the same time.
inline constexpr uint32_t most_descriptors = 64;

// Sends one message without waiting. The descriptors stay the caller's.
bool send_message(int socket, const void *message, size_t size, const int *descriptors,
                  uint32_t count) noexcept;

// The descriptors that come with a message. In every case, those that are not taken are closed.
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

// Receives without waiting. Returns the size of the message; 0 at the other side's end or for an
// empty message; -1 with errno. If this process has no room for more descriptors, fewer arrive than
// were sent. They are noted as the process's own (observe/descriptors.h).
long receive_message(int socket, void *message, size_t size, Descriptors &ret_descriptors) noexcept;

// The same, but waits for up to `left` nanoseconds, and subtracts the time taken.
long receive_within(int socket, void *message, size_t size, Descriptors &ret_descriptors,
                    int64_t &left) noexcept;

} // namespace emm::sockets
