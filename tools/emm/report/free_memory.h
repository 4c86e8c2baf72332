#pragma once

#include "report/history.h"

#include <cstdint>
#include <vector>

namespace emm::tool {

// What was not live just before a request, by who freed it last. `largest` is the largest piece
// of it in a row.
struct FreePart {
    uint64_t bytes = 0, largest = 0;
};
struct FreeMemory {
    FreePart own;       // freed last on the request's stream
    FreePart other;     // on another stream, which must be waited for
    FreePart unordered; // with no stream: after all work of the device
};

// Of the addresses that blocks had before `step`, which is an allocation. A piece may have gaps
// that no block ever had, as rounding leaves them: none longer than the block before it.
FreeMemory free_memory_before(const History &history, const std::vector<uint64_t> &addresses,
                              uint32_t step);

} // namespace emm::tool
