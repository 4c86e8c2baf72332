// One call of a served entry by the program, and the driver's own entries.
#pragma once

#include "../served.h"

#include <cuda.h>
#include <utility>

namespace emm::run {

// The driver's own entries in place of the served ones. Set once, before any entry is called.
extern Entries driver_entries;

// Calls the driver's own entry. `function` serves that entry and gives the signature.
template <auto function, class... Arguments>
CUresult ask_driver(Served served, Arguments... arguments) {
    return reinterpret_cast<decltype(function)>(driver_entries.at[served])(arguments...);
}

// A thread within a served entry. Meanwhile the plugin's own calls, through entries of the
// process's libcuda, go to the driver. So do all calls in a forked child, where CUDA no longer
// works. Code of the program that emm calls meanwhile, such as a finalizer, is served.
class Turn {
public:
    Turn() : outer_(depth_++ == 0 && !is_forked_child()) {}
    ~Turn() { depth_--; }
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;
    bool is_programs() const { return outer_; }

    // While such an object lives, the thread holds a lock that served entries take. So the calls of
    // the program's code that emm calls go to the driver, too.
    class Locked {
    public:
        Locked() { locked_++; }
        ~Locked() { locked_--; }
        Locked(const Locked &) = delete;
        Locked &operator=(const Locked &) = delete;
    };

    // Called by libemm around code of the program.
    static int exchange_depth(int depth) {
        return locked_ == 0 ? std::exchange(depth_, depth) : depth_;
    }

    static void watch_forks();
    static bool is_forked_child() { return is_forked_child_; }

private:
    static bool is_forked_child_; // written by the only thread of a child
    [[gnu::tls_model("initial-exec")]] static constinit thread_local int depth_, locked_;
    const bool outer_;
};

} // namespace emm::run
