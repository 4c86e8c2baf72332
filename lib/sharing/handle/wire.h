// The protocol between importer and exporter. Over a connection of its own, the importer sends a
// request and gets a reply with descriptors, again and again until it has all parts. It asks for
// the next parts when it is done with the last ones. So neither side ever has more of them open
// than one message carries, however many parts there are. An importer with only a name first asks
// for the handle.
#pragma once

#include "sockets/message.h"
#include "sockets/socket.h"

#include <emm/emm.h>

#include <cstddef>
#include <mutex>
#include <string>

namespace emm::sharing {

inline constexpr uint32_t parts_at_once = sockets::most_descriptors;

inline constexpr uint32_t wire_magic = 0x69777266;

// How long either side waits for the other's next step.
inline constexpr int64_t answer_timeout = 4'000'000'000; // nanoseconds

struct Request {
    uint32_t magic;
    uint32_t most;       // how many parts may come
    uint8_t nonce[16];   // as in the handle; the first half is compared
    uint64_t generation; // likewise
    uint8_t handle[64];  // likewise: known to holders of the handle only
    uint64_t first;      // the first part wanted
};

struct Reply {
    uint32_t magic;
    int32_t status;        // EMM_OK, or why there are no parts
    int32_t driver_result; // behind the status
    uint32_t count;        // of parts here: one descriptor each, in order
    uint64_t total;        // number of all parts
    uint64_t bytes;        // of the whole export, as its handle says
    uint64_t sizes[parts_at_once];
};

inline constexpr uint32_t handle_magic = 0x69776861;

struct HandleRequest {
    uint32_t magic;
    uint32_t reserved; // 0
    emm_ipc_name name; // only holders of the handle, and of its name, know it
};

struct HandleReply {
    uint32_t magic;
    int32_t status;        // EMM_OK, or why there is no handle
    emm_ipc_handle handle; // of the export with that name
};

// The `handle` field for memory that is served part by part.
struct DescriptorHandle {
    uint8_t secret[32];
    uint64_t parts;
    uint8_t zeros[24];
};
static_assert(sizeof(DescriptorHandle) == sizeof(emm_ipc_handle::handle));

// The request in an importer's message of `size` bytes; -1: no message came.
enum class Asked { nothing, parts, handle };
Asked what_is_asked(const void *message, long size) noexcept;

// Whether a peer's secret is the expected one. Takes the same time wherever they differ.
bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept;

// A handle tells the origin of its export: a random number of the process, which is also part of
// its socket's name, and the process's network namespace.

// Bytes that no other process can guess.
emm_status get_random(void *bytes, size_t size);

// 64 random bits that stay the same. After a failure, the next call tries again.
class RandomOnce {
public:
    emm_status get(uint8_t (&ret_bytes)[8]);

private:
    std::mutex mutex_;
    bool known_ = false;
    uint8_t bytes_[8] = {};
};

// This process's 64 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[8]);

// Identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// Where an export's process is, seen from here.
enum class Sight { here, elsewhere, unknown };
Sight sight_of(uint32_t exporter, uint32_t own) noexcept;

// The name of the socket of the process with this nonce.
std::string socket_name(const uint8_t *nonce);

} // namespace emm::sharing
