// The memory that captured calls allocate. A graph uses its memory in each launch. So the memory
// goes back to emm when the graph and all that was made from it are gone, and not when the program
// frees it.
#pragma once

#include "allocations.h"
#include "contexts.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emm::run {

// A capture in progress, or the graph to which the program itself adds a node.
struct Capture {
    CUgraph graph = nullptr; // NULL: no graph
    uint64_t id = 0;         // 0: no capture
};

class GraphMemory {
    using Names = std::vector<AllocationName>;

public:
    // Memory of graphs that a launch leaves or frees.
    struct Uses {
        Names leaves; // to the program
        Names frees;  // memory of other graphs, or memory that it leaves itself
    };
    struct Executable {
        Uses uses;
        bool frees_left = false; // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    };

    GraphMemory(const Driver &driver, Allocations &allocations)
        : driver_(driver), allocations_(allocations) {}

    // A failure is an answer of its own: otherwise memory of the graph would be taken for memory
    // outside of a capture.
    CUresult capture_of(CUstream stream, Capture &ret_capture) const;

    // Makes room for one more allocation or free of this capture. The graph then owns a user
    // object, which the driver hands on to all that is made or updated from the graph. The object's
    // end says that all of these are gone. Throws std::bad_alloc.
    CUresult prepare(const Capture &capture);

    // add: the capture has made this allocation, for which there is room. leaves: whether a launch
    // leaves it to the program. remove: the capture has freed it, and the plugin has it.
    void add(const Capture &capture, AllocationName name) noexcept;
    bool leaves(const Capture &capture, AllocationName name);
    void remove(const Capture &capture, AllocationName name) noexcept;

    // Each launch of the graph frees this allocation, for which there is room. False: each launch
    // does so already.
    bool add_free(const Capture &capture, AllocationName name) noexcept;
    void remove_free(const Capture &capture, AllocationName name) noexcept;

    // Whether CUDA would have nodes in the graph that allocate or free.
    bool has_nodes(CUgraph graph);

    // The program's operations on graphs. They throw std::bad_alloc.
    void capture_ended(CUgraph graph);
    void capture_lost(uint64_t id);  // with its graph, whose handle may be another graph's
    void graph_ended(CUgraph graph); // or captured anew, which ends its user objects
    void graph_moved(CUgraph child, CUgraph parent); // into a node
    void made_executable(CUgraphExec executable, CUgraph graph, bool frees_left);
    void executable_updated(CUgraphExec executable, CUgraph graph);
    void executable_ended(CUgraphExec executable);

    // NULL: its launches do not use memory of graphs.
    std::shared_ptr<const Executable> find(CUgraphExec executable);
    // False: the program has not freed the memory that the last launch left, or has not got the
    // memory that this launch frees.
    bool can_launch(const Executable &executable);
    // Gives the memory that the launch has freed and no graph uses any longer.
    std::vector<Allocation> launched(const Executable &executable);

    // Whether any graph has memory here; cheap.
    bool any() const { return any_.load(std::memory_order_relaxed); }

    // Whether there may be memory of ended graphs that the program does not have (cheap), and that
    // memory.
    bool has_ended() const { return ended_.load(std::memory_order_relaxed) != nullptr; }
    std::vector<Allocation> take_ended();

    // The memory could not be given back. It comes again with the next graph that ends.
    void put_back(const Allocation &allocation) noexcept;

private:
    // The data of a graph's user object, and all that the graph has allocated.
    struct Token {
        GraphMemory *owner = nullptr;
        Names memory;
        Token *next = nullptr; // of the tokens that have ended
    };
    struct Graph {
        uint64_t capture_id = 0; // of the last capture into it
        bool complete = false;   // the call has succeeded
        bool allocates = false;  // CUDA would have nodes that allocate
        Token *token = nullptr;  // NULL: the token of a graph that was moved here
        Uses uses;
    };

    Graph &graph_of(const Capture &capture); // the mutex is held
    Graph *find(const Capture &capture);     // likewise; NULL: the capture has no graph here
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
