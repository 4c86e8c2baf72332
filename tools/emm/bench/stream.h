#pragma once

#include "bench/team.h"
#include "driver.h"

#include <emm/emm.h>

#include <memory>

namespace emm::tool {

// A non-blocking stream; registered with emm if `context` is given.
class Stream {
public:
    explicit Stream(emm_context *context);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    CUstream get() const { return stream_; }

private:
    emm_context *context_;
    CUstream stream_ = nullptr;
};

// A work and the stream that it uses.
class StreamWork : public Work {
public:
    StreamWork(std::unique_ptr<Stream> stream, std::unique_ptr<Work> work)
        : stream_(std::move(stream)), work_(std::move(work)) {}
    void run(uint64_t pairs) override { work_->run(pairs); }
    void clean_up() override { work_->clean_up(); }

private:
    std::unique_ptr<Stream> stream_;
    std::unique_ptr<Work> work_; // goes first
};

} // namespace emm::tool
