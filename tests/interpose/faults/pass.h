// One run of a workload in which driver calls fail as planned while a served entry works; the
// program's own calls are spared.
#pragma once

#include "../driver.h"

#include <functional>
#include <string>
#include <vector>

namespace faults {

// The simulated driver's own entries, of the library that EMM_DRIVER names: the interposer opens
// the same library.
void open_simulator();
void arm(const std::string &fault);
unsigned failures();   // since arm()
std::string culprit(); // the last driver call that failed
void disarm();

// A call whose driver calls may fail; all others are spared.
CUresult unspared(const std::function<CUresult()> &entry);

// The memory that the driver has given out, as text.
std::string holdings();

// On all devices, the driver's memory that no account has; 0 without EMM_LIMIT.
int64_t uncounted_bytes();
// Whether the driver has refused since arm() to take memory back: that memory may stay.
bool keeps_something();

// Ends the process: without this, the test has no subject.
void must(CUresult result, const char *what);

class Pass {
public:
    // Makes a context of its own, current, with two streams, all without failures.
    Pass();
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;
    // Without failures: gives back the workload's remains, checks that the process is served as
    // before, and ends the context.
    void end();

    // A call of the program's. True: it succeeded. It may fail once a driver call has failed.
    bool call(const char *name, const std::function<CUresult()> &entry);
    // Calls that the program must make after a successful call: give_back() makes them, or end()
    // makes them again.
    void undo_later(const char *name, const std::function<CUresult()> &entry);
    void give_back(); // the latest first; a failed call and all before it stay
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
