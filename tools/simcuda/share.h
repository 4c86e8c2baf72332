#pragma once

#include "store.h"

#include <cstdint>
#include <vector>

namespace simcuda {

// What a shareable file descriptor says. It is one end of a socket pair in which this message and
// the descriptor of the memory's file lie waiting: any process that is given it can look at them,
// also when the exporter has ended, and the exporter can tell when nobody holds it any more.
struct Ticket {
    enum class Kind : uint32_t { physical, pool };
    uint64_t magic;
    Kind kind;
    int32_t device;
    uint64_t id; // in the exporter
    uint64_t offset, size;
    uint64_t handle_types;
};

struct Share {
    int keep = -1; // the exporter's end
    int give = -1; // the other, for the program
};

bool make_share(Ticket ticket, int memory, Share &ret_share);

// Reads a descriptor that some process made. The store is a device's own, or a foreign one.
bool open_share(int descriptor, Ticket::Kind kind, Ticket &ret_ticket, Store *&ret_store);

// Closes the exporter's ends whose other end nobody holds any more.
void close_unheld(std::vector<int> &keeps);

// The store behind a file of this or another process; it takes the descriptor over.
Store *store_of(int descriptor);
bool is_foreign(const Store *store);

} // namespace simcuda
