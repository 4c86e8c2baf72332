// What can be made to fail while emm works, and when: calls of the driver, memory, threads.
#pragma once

#include <string>

namespace faults {

enum class Kind { driver, memory, threads };

// Counted from 1, since the plan was armed.
struct Plan {
    Kind kind = Kind::driver;
    unsigned first = 1;
    bool onwards = false; // all from the first one on
    unsigned second = 0;  // one more; 0: none
    int code = 0;         // what a driver call answers; 0: what suits it
};

std::string text_of(const Plan &plan);

struct Outcome {
    unsigned failed = 0;
    bool keeps_memory = false; // the driver refused to take something back
    std::string last;          // the driver call that failed last
};

// Loads the simulated driver, which EMM_DRIVER names by its path.
void open_driver();

void arm(const Plan &plan);
Outcome disarm();

// What this thread does is emm's doing for a scope, and fails as planned. Threads that emm has
// started always are.
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
