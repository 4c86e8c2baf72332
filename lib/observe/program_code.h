// Code of the program that emm calls: its callbacks, hooks and finalizers. Threads of emm's that
// must not run such code.
#pragma once

#include <atomic>
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

// `emm run` counts how many served entries of CUDA the calling thread is inside of. It exports such
// a function by this name, which sets that number and gives the one before.
using ExchangeDepth = int (*)(int depth);
inline constexpr const char exchange_depth_name[] = "emm_run_exchange_depth";
inline constinit std::atomic<ExchangeDepth> exchange_depth = nullptr; // NULL: no `emm run`

// While such an object lives, emm runs code of the program that may call anything. Under `emm run`
// the calls of CUDA that this code makes are the program's, also from within another served call.
class ProgramCode {
public:
    ProgramCode() noexcept : exchange_(exchange_depth), before_(exchange_ ? exchange_(0) : 0) {}
    ~ProgramCode() {
        if (exchange_) {
            exchange_(before_);
        }
    }
    ProgramCode(const ProgramCode &) = delete;
    ProgramCode &operator=(const ProgramCode &) = delete;

private:
    const ExchangeDepth exchange_;
    const int before_;
};

} // namespace emm::observe
