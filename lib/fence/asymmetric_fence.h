// A memory fence for a race in which one side runs all the time and the other hardly ever. The
// frequent side stores, then loads, with nothing but a compiler fence between (std::
// atomic_signal_fence); the rare side stores, calls one of these functions, then loads. Afterwards
// every other thread of the process either has its store seen here, or sees what was stored here.
//
// Without state, for any thread. libemm and the plugin pool each compile it for itself.
#pragma once

namespace emm {

// Once, before the frequent side goes without fences. False: the kernel has no membarrier for this
// process (a sandbox), and both sides need fences of their own.
bool register_asymmetric_fence() noexcept;

// membarrier. 0, or the error with which the kernel refuses: it may begin to at any time, when a
// sandbox begins after the start.
int asymmetric_fence() noexcept;

// The same without the kernel's help, for what the frequent side began before it was refused: runs
// the calling thread on each processor in turn, so that what ran there has been switched out. Where
// that is refused too, it waits 100 ms; a store leaves its processor within microseconds.
void slow_asymmetric_fence() noexcept;

} // namespace emm
