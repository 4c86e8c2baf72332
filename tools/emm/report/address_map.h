#pragma once

#include "report/groups.h"
#include "report/history.h"

#include <cstdint>
#include <vector>

namespace emm::tool {

inline constexpr uint64_t no_address = ~uint64_t(0); // for a block without an address

std::vector<uint64_t> addresses_of(const History &history);

// All addresses that blocks ever had, in one row: wide gaps that no block ever had are left out.
// The row has cells of equal length.
class AddressRow {
public:
    AddressRow(const History &history, const std::vector<uint64_t> &addresses, size_t most_cells);

    uint64_t cell_bytes() const { return cell_bytes_; }
    size_t cells() const { return cells_; }
    uint64_t bytes() const { return bytes_; }
    // Where the cell begins.
    uint64_t address_of(size_t cell) const;
    // The distance of a block's address from the row's beginning.
    uint64_t offset_of(uint64_t address) const;
    // Cells in which a gap was left out.
    std::vector<size_t> cuts() const;

private:
    struct Range {
        uint64_t begin, end; // addresses
        uint64_t offset;     // in the row
    };

    std::vector<Range> ranges_;
    uint64_t bytes_ = 0, cell_bytes_ = 1;
    size_t cells_ = 0;
};

// At one moment: a byte for each cell. The upper half tells how much of the cell is live (0 none,
// 15 all), the lower half which group has most of it.
struct MapMoment {
    uint32_t step = 0;
    uint64_t time = 0, live = 0;
    std::vector<uint8_t> cells;
};
std::vector<MapMoment> map_moments(const History &history, const std::vector<uint64_t> &addresses,
                                   const GroupSet &groups, const AddressRow &row,
                                   const std::vector<uint32_t> &steps);

// Evenly spread steps, and the `chosen` ones; sorted.
std::vector<uint32_t> moments_of(const History &history, size_t most,
                                 const std::vector<uint32_t> &chosen);

// The gaps between the blocks that are live after the step, wide gaps left out.
struct Gaps {
    uint64_t count = 0, bytes = 0, largest = 0;
};
Gaps gaps_at(const History &history, const std::vector<uint64_t> &addresses, const AddressRow &row,
             uint32_t step);

// The free memory just before a request, by its last free. `largest` is the largest contiguous
// piece.
struct FreePart {
    uint64_t bytes = 0, largest = 0;
};
struct FreeMemory {
    FreePart own;       // freed last on the request's stream
    FreePart other;     // on another stream, which must be waited for
    FreePart unordered; // with no stream: after all work of the device
};

// For the addresses that blocks had before `step`, an allocation. A piece may have gaps that no
// block ever had, as rounding leaves them: none longer than the block before it.
FreeMemory free_memory_before(const History &history, const std::vector<uint64_t> &addresses,
                              uint32_t step);

} // namespace emm::tool
