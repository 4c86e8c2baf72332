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

// A capture in progress; or the graph that the program itself adds a node to.
struct Capture {
    CUgraph graph = nullptr; // NULL: there is none
    uint64_t id = 0;         // 0: it is no capture
};

class GraphMemory {
    using Names = std::vector<AllocationName>;

public:
    // Memory of graphs that a launch leaves or frees.
    struct Uses {
        Names leaves; // to the program
        Names frees;  // memory of other graphs, or what it leaves itself
    };
    struct Executable {
        Uses uses;
        bool frees_left = false; // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    };

    GraphMemory(const Driver &driver, Allocations &allocations)
        : driver_(driver), allocations_(allocations) {}

    // Not knowing is no answer: what is taken to be outside of a capture is not the graph's.
    CUresult capture_of(CUstream stream, Capture &ret_capture) const;

    // Room for one allocation or free more of this capture. The graph then owns a user object,
    // which the driver hands on to what is made or updated from the graph, and whose end says that
    // all of that is gone. Throws std::bad_alloc.
    CUresult prepare(const Capture &capture);

    // The capture has allocated that, for which there is room; whether a launch leaves that to the
    // program; it has freed that, and the plugin has it.
    void add(const Capture &capture, AllocationName name) noexcept;
    bool leaves(const Capture &capture, AllocationName name);
    void remove(const Capture &capture, AllocationName name) noexcept;

    // Each launch of the graph frees that, for which there is room. False: it does so already.
    bool add_free(const Capture &capture, AllocationName name) noexcept;
    void remove_free(const Capture &capture, AllocationName name) noexcept;

    // Whether CUDA would have nodes in the graph that allocate or free.
    bool has_nodes(CUgraph graph);

    // What the program does with graphs. Throw std::bad_alloc.
    void capture_ended(CUgraph graph);
    void capture_lost(uint64_t id);  // and its graph with it, whose handle may be another's
    void graph_ended(CUgraph graph); // or is captured anew, which releases its user objects
    void graph_moved(CUgraph child, CUgraph parent); // into a node
    void made_executable(CUgraphExec executable, CUgraph graph, bool frees_left);
    void executable_updated(CUgraphExec executable, CUgraph graph);
    void executable_ended(CUgraphExec executable);

    // NULL: its launches do nothing with memory of graphs.
    std::shared_ptr<const Executable> find(CUgraphExec executable);
    // False: the program has not freed what the last launch left, or has not got what this one
    // frees.
    bool can_launch(const Executable &executable);
    // The answer is what the launch has freed, and no graph uses any more.
    std::vector<Allocation> launched(const Executable &executable);

    // Whether any graph has memory here; cheap.
    bool any() const { return any_.load(std::memory_order_relaxed); }

    // Whether there may be memory of graphs that are gone, which the program does not have; cheap.
    // And that memory.
    bool has_ended() const { return ended_.load(std::memory_order_relaxed) != nullptr; }
    std::vector<Allocation> take_ended();

    // It could not be given back: it comes again with what ends next.
    void put_back(const Allocation &allocation) noexcept;

private:
    // What the user object carries, and all that its graph has allocated.
    struct Token {
        GraphMemory *owner = nullptr;
        Names memory;
        Token *next = nullptr; // of those that have ended
    };
    struct Graph {
        uint64_t capture_id = 0; // of the last capture into it
        bool complete = false;   // which has ended well
        Token *token = nullptr;  // NULL: that of a graph moved here
        Uses uses;
    };

    Graph &graph_of(const Capture &capture); // the mutex is held
    Graph *find(const Capture &capture);     // likewise; NULL: it has nothing
    const Graph *find(CUgraph graph) const;  // likewise; NULL also while a capture goes on
    bool is_programs(AllocationName name);
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
