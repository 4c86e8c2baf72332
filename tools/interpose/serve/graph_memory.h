// The memory that captured calls allocate. A graph uses it in each launch, so it goes back to emm
// when the graph and all that was made from it are gone, and not when the program frees it.
#pragma once

#include "allocations.h"
#include "contexts.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emm::run {

// A capture in progress.
struct Capture {
    CUgraph graph = nullptr; // NULL: there is none
    uint64_t id = 0;
};

class GraphMemory {
public:
    GraphMemory(const Driver &driver, Allocations &allocations)
        : driver_(driver), allocations_(allocations) {}

    // Not knowing is no answer: what is taken to be outside of a capture is not the graph's.
    CUresult capture_of(CUstream stream, Capture &ret_capture) const;

    // Room for one allocation more of this capture. The graph then owns a user object, whose end
    // says that it is gone. Throws std::bad_alloc.
    CUresult prepare(const Capture &capture);

    // The capture has allocated that, for which there is room; whether it has; it has freed that,
    // so that no launch leaves it to the program.
    void add(const Capture &capture, AllocationName name) noexcept;
    bool has(const Capture &capture, AllocationName name);
    void remove(const Capture &capture, AllocationName name) noexcept;

    // The capture frees the memory of another graph, whenever its own is launched. False: it does
    // so already. Throws std::bad_alloc.
    bool add_free(const Capture &capture, AllocationName name);

    // What the program does with graphs. Throw std::bad_alloc.
    void capture_ended(CUgraph graph);
    void graph_ended(CUgraph graph);
    void made_executable(CUgraphExec executable, CUgraph graph);
    void executable_ended(CUgraphExec executable);
    // The answer is what the launch has freed, and no graph uses any more.
    std::vector<Allocation> launched(CUgraphExec executable);

    // Whether any graph has memory here; cheap.
    bool any() const { return any_.load(std::memory_order_relaxed); }

    // Whether there may be memory of graphs that are gone, which the program does not have; cheap.
    // And that memory.
    bool has_ended() const { return ended_.load(std::memory_order_relaxed) != nullptr; }
    std::vector<Allocation> take_ended();

    // It could not be given back: it comes again with what ends next.
    void put_back(const Allocation &allocation) noexcept;

private:
    using Names = std::vector<AllocationName>;

    // What the user object carries, and all that its graph has allocated.
    struct Token {
        GraphMemory *owner = nullptr;
        Names memory;
        Token *next = nullptr; // of those that have ended
    };
    struct Graph {
        uint64_t capture_id = 0; // of the last capture into it
        bool complete = false;   // which has ended well
        Token *token = nullptr;
        Names leaves; // what a launch leaves to the program
        Names frees;  // memory of other graphs
    };
    struct Executable {
        Names leaves, frees;
    };

    Graph &graph_of(const Capture &capture); // the mutex is held
    Graph *find(const Capture &capture);     // likewise; NULL: it has nothing
    CUresult make_token(Graph &graph, CUgraph handle);
    void note_any() noexcept;
    void end(const Token &token, std::vector<Allocation> &ret_given_back);
    void post(Token *token) noexcept;
    static void CUDA_CB graph_is_gone(void *token);

    const Driver &driver_;
    Allocations &allocations_;
    std::mutex mutex_;
    std::map<CUgraph, Graph> graphs_;
    std::map<CUgraphExec, std::shared_ptr<const Executable>> executables_;
    std::vector<Allocation> refused_; // by the plugin
    std::atomic<bool> any_{false};
    std::atomic<Token *> ended_{nullptr}; // their graphs are gone
};

} // namespace emm::run
