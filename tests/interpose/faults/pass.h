// One run of a workload in which driver calls fail as planned while a served entry is at work; what
// the program does for itself is spared.
#pragma once

#include "../driver.h"

#include <functional>
#include <string>
#include <vector>

namespace faults {

// The simulated driver's own, of the library that EMM_DRIVER names: the interposer opens the same.
void open_simulator();
void arm(const std::string &fault);
unsigned failures();   // since arm()
std::string culprit(); // the driver call that failed last
void disarm();

// A call whose driver calls may fail; all others are spared.
CUresult unspared(const std::function<CUresult()> &entry);

// What the driver has given out, as text.
std::string holdings();

// Of all devices, what the driver has handed out and no account has; 0 without EMM_LIMIT.
int64_t uncounted_bytes();
// Whether it has refused to take something back since arm(): that may stay then.
bool keeps_something();

// Ends the process: without this there is nothing to test.
void must(CUresult result, const char *what);

class Pass {
public:
    // A context of its own, current, with two streams, all made without failures.
    Pass();
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;
    // Without failures: gives back what the workload could not, finds that the process is served
    // as before, and ends the context.
    void end();

    // A call of the program's. True: it succeeded. It may fail once a driver call has.
    bool call(const char *name, const std::function<CUresult()> &entry);
    // What the program owes a successful call: done by give_back(), or again by end().
    void owe(const char *name, const std::function<CUresult()> &entry);
    void give_back(); // the latest first; what fails is owed still, and all before it
    void forget() { owed_.clear(); }
    bool has_failed() const { return failures() != 0; }
    void complain(const std::string &complaint) { complaints_.push_back(complaint); }
    const std::vector<std::string> &complaints() const { return complaints_; }

    CUstream stream(size_t number) const { return streams_[number]; }
    CUcontext context() const { return context_; }
    CUdeviceptr allocate(size_t size);                     // 0: it failed
    CUdeviceptr allocate_on(CUstream stream, size_t size); // is freed there
    void use(CUdeviceptr ptr, size_t size, CUstream stream) const;

private:
    struct Debt {
        const char *name;
        std::function<CUresult()> entry;
    };

    CUcontext context_ = nullptr;
    CUstream streams_[2] = {};
    std::vector<Debt> owed_;
    std::vector<std::string> complaints_;
};

struct Workload {
    const char *name;
    void (*run)(Pass &);
};
extern const std::vector<Workload> workloads;

} // namespace faults
