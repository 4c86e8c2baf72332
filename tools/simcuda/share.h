#pragma once

#include "race.h"

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <map>
#include <vector>

namespace simcuda {

// A body of bytes: a device's memory, another process's, or the host's.
struct Store {
    int fd = -1;
    std::byte *bytes = nullptr; // NULL for host memory, where offsets are addresses
    uint64_t size = 0;
    Shadow shadow;
    std::map<uint64_t, unsigned> held; // of another process: the imports, by ticket

    std::byte *at(uint64_t offset) const {
        return bytes ? bytes + offset : reinterpret_cast<std::byte *>(offset);
    }
};

// The content of a shareable file descriptor. The descriptor is the memory's file, opened anew, and
// stands at the place of this ticket, behind the memory. It has a lock on that place for as long as
// any process has the descriptor, or memory imported by it. By that lock the exporter knows that
// the memory is still in use, and needs no descriptor of its own.
struct Ticket {
    enum class Kind : uint32_t { physical, pool };
    uint64_t magic;
    Kind kind;
    int32_t device;
    uint64_t id; // in the exporter
    uint64_t offset, size;
    uint64_t handle_types;
};

// Returns the offset of a new ticket. Each shared object has a ticket of its own.
uint64_t new_ticket_place(const Store &store);
bool write_ticket(const Store &store, uint64_t place, Ticket ticket);

// A descriptor for the program; -1: it cannot be made.
int make_share(const Store &store, uint64_t place);

// A descriptor of the memory's file that stands at the offset; -1: it cannot be made.
int make_view(const Store &store, uint64_t offset);

// Reads a descriptor that any process made. The store is a device's own, or a foreign one.
bool open_share(int descriptor, Ticket::Kind kind, Ticket &ret_ticket, Store *&ret_store,
                uint64_t &ret_place);

// Whether another process has a descriptor, or an import through a descriptor.
bool is_held(const Store &store, uint64_t place);

// Counts the imports of this process.
void hold(Store &store, uint64_t place);
void release_ticket(Store &store, uint64_t place);

// The store behind a file of this or another process. Takes ownership of the descriptor.
Store *store_of(int descriptor);
bool is_foreign(const Store *store);

struct Context;
struct Region;

// Closes the import for the context. False: no context has the import open any longer, so the
// caller forgets it.
bool leave_import(Region &region, Context *context);

// Forgets memory of another process, whatever the number of its openings.
void close_import(CUdeviceptr start);

} // namespace simcuda
