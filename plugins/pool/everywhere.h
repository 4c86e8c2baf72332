// Portable pinned memory may be in use by every context: what was freed with no stream waits for a
// mark on the work of each context that has a pool.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace emm::pool {

class Manager;

// One mark in each context, set after every free with a tag up to `tag`.
struct WorkMarks {
    uint64_t tag = 0;
    std::vector<std::pair<uint64_t, uint64_t>> marks; // (manager's number, its mark)
};

// The managers of this process, by numbers that do not come back. While one is visited it does not
// go away.
namespace everywhere {

uint64_t enter(Manager &manager); // throws std::bad_alloc
void leave(uint64_t number);      // waits for visits to end
std::vector<uint64_t> numbers();
Manager *begin_visit(uint64_t number); // NULL: it has gone
void end_visit(uint64_t number);

} // namespace everywhere

} // namespace emm::pool
