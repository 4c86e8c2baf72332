#pragma once

#include "common/allocations.h"
#include "common/driver.h"

#include <atomic>
#include <memory>

namespace emm::common {

// Whether work can be put on a stream right now.
struct Capture {
    // Work cannot run now: the stream captures, or it is the legacy stream while a stream that
    // synchronizes with it captures.
    bool active = false;
    // The graph being captured; NULL for the legacy stream, and after the capture was invalidated.
    CUgraph graph = nullptr;
};
Capture capture_of(const Driver &driver, emm_stream stream);

// Keeps memory that was freed on a capturing stream. Every launch of the graph uses the memory
// again, so the memory stays until the graph and everything made from it are gone. The graph owns a
// user object, whose destructor tells. The destructor may run on any thread, where no driver call
// is allowed, and after the manager has ended. So it only moves the entry to where the manager
// finds it.
class GraphHold {
public:
    GraphHold();

    // Holds `entry` until `graph` is gone, and leaves `entry` empty. If the graph is gone already,
    // or on a failure, which throws, `entry` is unchanged.
    void hold(const Driver &driver, CUgraph graph, LiveAllocations::Entry &entry);

    // Whether there may be something to take; cheap.
    bool has_released() const noexcept;
    // One entry whose graph is gone; empty if there is none.
    LiveAllocations::Entry take_released() noexcept;
    // Takes any entry, for a reset, whether its graph is gone or not.
    LiveAllocations::Entry take_any() noexcept;

private:
    struct State;
    struct Token;

    static void CUDA_CB graph_is_gone(void *token);

    std::shared_ptr<State> state_;
};

} // namespace emm::common
