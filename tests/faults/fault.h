// The calls that can be made to fail while emm works, and when: of the driver, and of the C library
// (parts/failing_calls.def) for memory, for threads, and other system calls.
#pragma once

#include <simcuda.h>

#include <string>

namespace faults {

enum class Kind { driver, memory, threads, system, sandbox };

// Counted from 1, since the plan was armed.
struct Plan {
    Kind kind = Kind::driver;
    unsigned first = 1;
    bool onwards = false;       // all calls from the first on
    unsigned second = 0;        // one more call; 0: none
    int code = 0;               // the result of a driver call; 0: a suitable one
    const char *name = nullptr; // of the only calls that count; null: all
    int error = 0;              // of a filter
};

std::string text_of(const Plan &plan);

struct Outcome {
    unsigned failed = 0;
    bool keeps_memory = false;   // the driver refused to take something back
    std::string last;            // the last call that failed
    bool without_record = false; // an error has no place for a text of its own
};

// Loads the simulated driver, which EMM_DRIVER names by its path.
void open_driver();
// The counters of that driver, without emm.
simcuda_counters counters();

void arm(const Plan &plan);
Outcome disarm();

// Whether a call has failed since arm(), and before disarm().
bool has_failed();
// Whether calls go on to fail, by the plan in force; and whether those of every name do.
bool fails_for_good();
bool all_fail_from_now();

// Whether `text`, of a failure since arm(), has the system's words for what failed.
bool tells_reason(const std::string &text);

// The calls that filters forbid (kind `sandbox`), counted from 0; null behind the last one.
// Plan::name is such a name, and Plan::error its errno.
const char *forbidden_call(unsigned number);

// The name of a system call that can fail, counted from 0; null behind the last one.
const char *system_call(unsigned number);

// Within the scope, this thread's calls count as emm's and fail as planned. Calls of threads that
// emm has started always count so.
class Inside {
public:
    Inside();
    ~Inside();
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;
};

// The program's own doing for a scope: a callback of emm's.
class Outside {
public:
    Outside();
    ~Outside();
    Outside(const Outside &) = delete;
    Outside &operator=(const Outside &) = delete;
};

} // namespace faults
