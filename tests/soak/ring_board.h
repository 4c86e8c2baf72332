// The file that all members of a ring and ring.py map: a Board, and a Slot for each member behind
// it. ring_board.py has the same layout. Zero bytes are a board without members.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda.h>

namespace ring {

using Number = std::atomic<uint64_t>;

// In the order of the names in ring_board.py.
enum Doing : uint64_t {
    starting,
    resting,
    allocating,
    freeing,
    checking,
    exporting,
    verifying,
    opening,
    reading,
    answering,
    closing,
    waiting,
    ending,
};
enum Count {
    allocated,
    freed,
    refused,
    checked,
    offered,
    ring_reads,
    reads_of_dead,
    answers,
    late_opens,
    looks,
    counts,
};

struct Slot {
    Number incarnation, counting; // by ring.py. `counting` is odd while `live` counts.
    Number beats, doing;
    Number live, version; // bytes that the member has for certain; the number of their changes
    Number device_bytes, census;
    Number offer, offer_size, offer_value; // `offer` is even where there is one
    char handle[sizeof(CUipcMemHandle)];
    Number held_incarnation, held_offer; // of the member before, which may not free it
    Number answered_incarnation, answered_offer;
    Number count[counts];
    char wrong[256];
};
struct Board {
    Number census, released; // numbers: members wait between the two
    Number lean;             // members free memory, and take none
    Number over;
};

} // namespace ring
