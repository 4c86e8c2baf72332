#pragma once

#include "bench/memory.h"
#include "bench/stream.h"
#include "bench/works.h"

#include <atomic>
#include <thread>

namespace emm::tool {

// Pairs while another stream has work that lasts until 10,000 of them are done, or 50 ms for
// plugins whose frees wait for it. A function on the host stands for a kernel. The time is that
// of all 10,000, interruptions included.
class BusyWork : public Work {
public:
    BusyWork(PluginMemory memory, size_t size, CUcontext context)
        : context_(context), pairs_(memory, size) {}
    ~BusyWork() override { end(); }
    uint64_t batch() const override { return 10'000; }
    void begin() override;
    void run(uint64_t pairs) override { pairs_.run(pairs); }
    void end() override;

private:
    static void last(void *argument);
    void launch();

    const CUcontext context_;
    Stream stream_{nullptr};
    std::atomic<bool> runs_{false}, over_{true};
    std::atomic<CUresult> launched_{CUDA_SUCCESS};
    std::thread launcher_; // the simulated driver may do the work in the call
    PairWork<PluginMemory> pairs_;
};

} // namespace emm::tool
