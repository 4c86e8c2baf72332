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
    std::map<uint64_t, unsigned> held; // of another process: what was imported, by its ticket

    std::byte *at(uint64_t offset) const {
        return bytes ? bytes + offset : reinterpret_cast<std::byte *>(offset);
    }
};

// What a shareable file descriptor says. The descriptor is the memory's file, opened anew, and
// stands at the place behind the memory where this lies. It has a lock on that place, which is
// there for as long as any process has the descriptor, or imported memory by it: that is how the
// exporter knows that the memory is still in use, and it needs no descriptor for it.
struct Ticket {
    enum class Kind : uint32_t { physical, pool };
    uint64_t magic;
    Kind kind;
    int32_t device;
    uint64_t id; // in the exporter
    uint64_t offset, size;
    uint64_t handle_types;
};

// The place of a ticket: one for each shared object.
uint64_t new_ticket_place(const Store &store);
bool write_ticket(const Store &store, uint64_t place, Ticket ticket);

// A descriptor for the program; -1: there is none.
int make_share(const Store &store, uint64_t place);

// A descriptor of the memory's file that stands at the offset; -1: there is none.
int make_view(const Store &store, uint64_t offset);

// Reads a descriptor that some process made. The store is a device's own, or a foreign one.
bool open_share(int descriptor, Ticket::Kind kind, Ticket &ret_ticket, Store *&ret_store,
                uint64_t &ret_place);

// Whether another process has a descriptor, or an import by it.
bool is_held(const Store &store, uint64_t place);

// What this process has imported is counted.
void hold(Store &store, uint64_t place);
void let_go(Store &store, uint64_t place);

// The store behind a file of this or another process; it takes the descriptor over.
Store *store_of(int descriptor);
bool is_foreign(const Store *store);

struct Context;
struct Region;

// Closes it for the context. False if no context has it open any more: forget it.
bool leave_import(Region &region, Context *context);

// Forgets memory of another process, however often it was opened.
void close_import(CUdeviceptr start);

} // namespace simcuda
