#pragma once

#include <csignal>

namespace emm::observe {

// While it lives, a write that would end the process fails instead: with EFBIG beyond RLIMIT_FSIZE,
// with EPIPE where no process reads. For the calling thread; errno stays.
class WriteSignalsBlocked {
public:
    WriteSignalsBlocked() noexcept;
    ~WriteSignalsBlocked();
    WriteSignalsBlocked(const WriteSignalsBlocked &) = delete;
    WriteSignalsBlocked &operator=(const WriteSignalsBlocked &) = delete;

private:
    sigset_t mask_before_, pending_before_;
};

} // namespace emm::observe
