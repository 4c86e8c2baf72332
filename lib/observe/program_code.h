// Threads of emm's that must not run code of the program: its callbacks, hooks and finalizers.
#pragma once

#include <utility>

namespace emm::observe {

// While such an object lives, emm runs no code of the program on this thread, and waits for no such
// code on other threads. That code may wait for a thread that emm holds.
class NoProgramCode {
public:
    // `is_meant` false: the object changes nothing.
    explicit NoProgramCode(bool is_meant = true) noexcept
        : before_(std::exchange(applies, applies || is_meant)) {}
    ~NoProgramCode() { applies = before_; }
    NoProgramCode(const NoProgramCode &) = delete;
    NoProgramCode &operator=(const NoProgramCode &) = delete;
    static bool is_in_force() noexcept { return applies; }

private:
    const bool before_;
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool applies = false;
};

} // namespace emm::observe
