// Portable pinned memory may be in use by every context: what was freed with no stream waits for a
// mark on the work of each context that has a pool.
#pragma once

#include "cuda/driver.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace emm::pool {

class Manager;

// An event after all work that a context held. It is the asking manager's, so it outlasts a reset
// and the end of that context's own manager, and goes with the context itself.
struct WorkMark {
    CUcontext context = nullptr;
    uint64_t context_id = 0;
    CUevent event = nullptr; // NULL: there is nothing to wait for
};

// One mark in each context, set after every free with a tag up to `tag`.
struct WorkMarks {
    uint64_t tag = 0;
    std::vector<WorkMark> marks;
};

// The managers of this process, by numbers that do not come back. While one is visited it does not
// go away.
namespace everywhere {

uint64_t enter(Manager &manager); // throws std::bad_alloc
void leave(uint64_t number);      // waits for visits to end
std::vector<uint64_t> numbers();
Manager *begin_visit(uint64_t number); // NULL: it has gone
void end_visit(uint64_t number);

// Managers with portable memory; the others need not wait for their work when they end.
void count_portable(int more);
bool has_portable();

// Contexts whose managers have ended with work that could not be waited for. What was freed with no
// stream stays where it is until they have died.
void leave_unfinished(CUcontext context, uint64_t context_id);
bool all_finished(const Driver &driver);

} // namespace everywhere

} // namespace emm::pool
