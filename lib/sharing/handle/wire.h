// What importer and exporter say to each other: a request and a reply with descriptors, over a
// connection of their own, and so on until the importer has all parts. It asks for the next ones
// when it has done with the last, so neither side ever has more of them open than one message
// carries, however many there are. An importer that has a name only asks for the handle before.
#pragma once

#include "sockets/message.h"
#include "sockets/socket.h"

#include <emm/emm.h>

#include <cstddef>
#include <string>

namespace emm::sharing {

inline constexpr uint32_t parts_at_once = sockets::most_descriptors;

inline constexpr uint32_t wire_magic = 0x69777266;

// How long either side waits for the other to go on.
inline constexpr int64_t answer_timeout = 4'000'000'000; // nanoseconds

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

// What `handle` holds of memory that is served part by part.
struct DescriptorHandle {
    uint8_t secret[32];
    uint64_t parts;
    uint8_t zeros[24];
};
static_assert(sizeof(DescriptorHandle) == sizeof(emm_ipc_handle::handle));

// What a message of `size` bytes from an importer asks for; -1 is none that came.
enum class Asked { nothing, parts, handle };
Asked what_is_asked(const void *message, long size) noexcept;

// Whether what a peer says is what it has to know. It takes as long whatever the difference is.
bool is_same(const uint8_t (&a)[64], const uint8_t (&b)[64]) noexcept;

// Where an export comes from, as its handle tells: the process, by a random number, which is also
// the name of the socket at which that process is asked, and its network namespace.

// This process's 64 random bits.
emm_status get_nonce(uint8_t (&ret_nonce)[8]);

// What identifies the network namespace of this process; 0: not known.
uint32_t network_namespace() noexcept;

// Where an export is, seen from here.
enum class Sight { here, elsewhere, unknown };
Sight sight_of(uint32_t exporter, uint32_t own) noexcept;

// Of the socket of the process with this nonce.
std::string socket_name(const uint8_t *nonce);

} // namespace emm::sharing
