#pragma once

#include "common/allocations.h"
#include "common/driver.h"

#include <atomic>
#include <memory>

namespace emm::common {

// What can be put on a stream right now.
struct Capture {
    bool active = false;     // nothing that is to happen now: it captures, or is the legacy stream
                             // while a stream that synchronizes with that one captures
    CUgraph graph = nullptr; // what it captures into; NULL for the legacy stream, and when the
                             // capture has been invalidated
};
Capture capture_of(const Driver &driver, emm_stream stream);

// Keeps memory that was freed on a capturing stream: every launch of the graph will use it again,
// so it has to stay until the graph and all that was made from it are gone. The graph owns a user
// object, whose end says so. It may come on any thread, where no driver call is allowed, and after
// the manager: it only moves the entry to where the manager finds it.
class GraphHold {
public:
    GraphHold();

    // Holds `entry` until `graph` is gone, and leaves it empty; if the graph is gone already, or
    // on a failure, which throws, `entry` is as it was.
    void hold(const Driver &driver, CUgraph graph, LiveAllocations::Entry &entry);

    // True if there may be something to take; cheap.
    bool has_released() const noexcept;
    // One entry whose graph is gone; empty if there is none.
    LiveAllocations::Entry take_released() noexcept;
    // Everything, for a reset: graphs or not.
    LiveAllocations::Entry take_any() noexcept;

private:
    struct State;
    struct Token;

    static void CUDA_CB graph_is_gone(void *token);

    std::shared_ptr<State> state_;
};

} // namespace emm::common
