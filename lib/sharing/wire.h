// What importer and exporter say to each other: a request and a reply with descriptors, over a
// connection of their own, and so on until the importer has all parts. It asks for the next ones
// when it has done with the last, so neither side ever has more of them open than one message
// carries, however many there are. An importer that has a name only asks for the handle before.
#pragma once

#include <emm/emm.h>

#include <cstddef>
#include <ctime>
#include <utility>

namespace emm::sharing {

// SCM_RIGHTS carries 253; these are what both processes are short of for a moment.
inline constexpr uint32_t parts_at_once = 64;

inline constexpr uint32_t wire_magic = 0x69777266;

// How long either side waits for the other to go on.
inline constexpr int64_t answer_timeout = 4'000'000'000; // nanoseconds

inline int64_t now() noexcept {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec;
}

struct Request {
    uint32_t magic;
    uint32_t most;       // how many parts may come
    uint8_t nonce[16];   // what the handle says; its first half is looked at
    uint64_t generation; // likewise
    uint8_t handle[64];  // likewise: known to holders of the handle only
    uint64_t first;      // the first part that is asked for
};

struct Reply {
    uint32_t magic;
    int32_t status;        // EMM_OK, or why there are no parts
    int32_t driver_result; // behind the status
    uint32_t count;        // of parts here: one descriptor each, in order
    uint64_t total;        // of all parts
    uint64_t bytes;        // of the whole export, as its handle says
    uint64_t sizes[parts_at_once];
};

inline constexpr uint32_t handle_magic = 0x69776861;

struct HandleRequest {
    uint32_t magic;
    uint32_t reserved; // 0
    emm_ipc_name name; // known to holders of the handle, and of its name, only
};

struct HandleReply {
    uint32_t magic;
    int32_t status;        // EMM_OK, or why there is no handle
    emm_ipc_handle handle; // of the export that the name names
};

// What a message of `size` bytes from an importer asks for; -1 is none that came.
enum class Asked { nothing, parts, handle };
Asked what_is_asked(const void *message, long size) noexcept;

// Whether what a peer says is what it has to know. It takes as long whatever the difference is.
bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept;

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
    int all_[parts_at_once];
    uint32_t count_ = 0;
};

// The size of the message that has come, 0 at the other side's end or for an empty one, or -1 with
// errno; it does not wait for one. There may be fewer descriptors than were sent, if this process
// has no room for more. They are noted as the process's own (observe/descriptors.h).
long receive_message(int socket, void *message, size_t size, Descriptors &ret_descriptors) noexcept;

} // namespace emm::sharing
