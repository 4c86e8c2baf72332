// Calls of the C library that fail as planned: those of failing_calls.def. failing_calls.cpp stands
// in front of the C library for the whole process that it is linked into.
#pragma once

#include <string>

namespace failing_calls {

enum class Kind { memory, threads, system };

// Counted from 1, since the plan was armed. All of a kind, or those of one name alone.
struct Plan {
    Kind kind = Kind::memory;
    unsigned first = 1;
    bool onwards = false;       // all calls from the first on
    unsigned second = 0;        // one more call; 0: none
    const char *name = nullptr; // of a row
};

// One plan at a time. `is_concerned` tells whether a call of the calling thread counts, which
// returns to `caller`; it takes no memory.
void arm(const Plan &plan, bool (*is_concerned)(const void *caller));
// The number of failures since arm().
unsigned failures();
void disarm();
// The last call that failed, and the place that made it: "socket, from libemm.so.1+0x1234".
std::string last_failure();
// Whether a call of this name failed since arm().
bool has_failed(const char *name);
// Whether `text` has the system's words for the error of a call that failed since arm().
bool tells_reason(const std::string &text);

// The name of a row, counted from 0; null behind the last one.
const char *name_of(Kind kind, unsigned row);

} // namespace failing_calls
