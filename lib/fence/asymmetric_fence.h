// A memory fence for a race in which one side runs all the time and the other hardly ever. The
// frequent side stores, then loads, with only a compiler fence between (std::atomic_signal_fence).
// The rare side stores, calls one of these functions, then loads. Afterwards, for every other
// thread of the process: either its store is visible here, or the thread sees the store made here.
//
// Without state, for any thread. libemm and the plugin pool each compile it for itself.
#pragma once

namespace emm {

// Call this once, before the frequent side goes without fences. False: the kernel has no membarrier
// for this process (a sandbox), and both sides need fences of their own.
bool register_asymmetric_fence() noexcept;

// membarrier. Returns 0, or the kernel's error. The kernel may begin to refuse at any time, if a
// sandbox begins after the start.
int asymmetric_fence() noexcept;

// The same without the kernel's help, for frequent sides that began before the refusal. Runs the
// calling thread on each processor in turn, so that every other thread there has been switched out.
// If that is refused too, waits 100 ms; a store leaves its processor within microseconds.
void slow_asymmetric_fence() noexcept;

} // namespace emm
