#pragma once

#include "clock.h"

#include <cuda.h>
#include <map>
#include <optional>
#include <vector>

namespace simcuda {

// One use of memory by one piece of work.
struct Access {
    uint32_t line = 0;
    uint32_t stream_id = 0; // of cuStreamGetId: a handle may name another stream later
    uint64_t time = 0;      // 0: none
    const char *call = "";
    CUstream stream = nullptr;
    uint32_t thread = 0;
    bool write = false;
    uint64_t place = 0; // the id of the mapping; 0: no mapping
};

// Adds a use. Forgets earlier uses on its line, and uses that the host has seen complete.
void add_use(std::vector<Access> &uses, const Access &use, const Host &host);

// The latest write of each byte, and the reads since. Kept by physical byte, so that memory which
// is mapped at two addresses, or mapped again, stays the same memory.
class Shadow {
public:
    // Records the access. Returns an earlier access that conflicts with it and is in no order with
    // it, if any. `clock` has the accesses that come before this one, `begun` those that had ended
    // when its work began. Work sees a write through another mapping only if it began after the
    // write's end.
    std::optional<Access> use(uint64_t start, uint64_t size, const Access &access,
                              const Clock &clock, const Clock &begun, const Host &host);

    // An access that the host has not seen complete.
    std::optional<Access> unseen(uint64_t start, uint64_t size, const Host &host) const;

    void clear(uint64_t start, uint64_t size);

private:
    struct Cell {
        uint64_t end = 0;
        Access write;
        std::vector<Access> reads;
    };
    using Cells = std::map<uint64_t, Cell>;
    void split(uint64_t at);
    void fill_gaps(uint64_t start, uint64_t end);

    Cells cells_;
};

// Reports a use that is not ordered behind an earlier one, or that began before the earlier one's
// end at another address.
void report_race(const Access &earlier, const Access &later, bool ordered, CUdeviceptr address,
                 uint64_t size);

// Reports memory that is taken away while, as far as the host knows, work still uses it.
void report_unseen(const Access &user, CUdeviceptr address, uint64_t size);

} // namespace simcuda
