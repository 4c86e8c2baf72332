// One call that the program makes of a served entry, and the driver's own entries.
#pragma once

#include "../served.h"

#include <cuda.h>

namespace emm::run {

// The driver's own entries, of those that are served. Set once, before any entry is.
extern Entries driver_entries;

// Calls the driver's own entry; `function`, the one that serves it, gives the signature.
template <auto function, class... Arguments>
CUresult ask_driver(Served served, Arguments... arguments) {
    return reinterpret_cast<decltype(function)>(driver_entries.at[served])(arguments...);
}

// A thread within a served entry. What the plugin asks of the driver meanwhile, through entries of
// the process's libcuda, is the driver's; so is everything in a forked child, where CUDA works no
// more.
class Turn {
public:
    Turn() : outer_(depth_++ == 0 && !is_forked_child()) {}
    ~Turn() { depth_--; }
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;
    bool is_programs() const { return outer_; }

    static void watch_forks();
    static bool is_forked_child() { return is_forked_child_; }

private:
    static bool is_forked_child_; // written by the only thread of a child
    [[gnu::tls_model("initial-exec")]] static constinit thread_local int depth_;
    const bool outer_;
};

} // namespace emm::run
