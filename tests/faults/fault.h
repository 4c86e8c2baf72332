// The calls that can be made to fail while emm works, and when: of the driver, for memory, for
// threads.
#pragma once

#include <string>

namespace faults {

enum class Kind { driver, memory, threads };

// Counted from 1, since the plan was armed.
struct Plan {
    Kind kind = Kind::driver;
    unsigned first = 1;
    bool onwards = false; // all calls from the first on
    unsigned second = 0;  // one more call; 0: none
    int code = 0;         // the result of a driver call; 0: a suitable one
};

std::string text_of(const Plan &plan);

struct Outcome {
    unsigned failed = 0;
    bool keeps_memory = false; // the driver refused to take something back
    std::string last;          // the last driver call that failed
};

// Loads the simulated driver, which EMM_DRIVER names by its path.
void open_driver();

void arm(const Plan &plan);
Outcome disarm();

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
