// One thread of the traffic: streams of its own that come and go in every context, blocks that move
// over them and on to other threads, frees of every kind, graphs, host memory, memory pools, and
// contexts of its own.
#pragma once

#include "../../parts/chance.h"
#include "world.h"

class Worker {
public:
    Worker(World &world, size_t seed);
    void run(size_t steps); // or until the traffic stops
    void finish();          // gives back memory that outlives its context

private:
    struct Stream {
        CUstream handle = nullptr;
        bool blocking = false; // waits for the legacy stream
    };
    // An executable graph, with the block that it writes and the memory that it leaves.
    struct Graph {
        CUgraphExec exec = nullptr;
        CUgraph source = nullptr; // the graph it was made or updated from; NULL: destroyed
        Block block;
        unsigned leaves = 0;         // the pattern
        Block left;                  // ptr 0: none
        bool has_left = false;       // the thread has it since the last launch
        CUgraphExec frees = nullptr; // another graph's, which frees it; NULL: none
    };
    struct Pinned {
        void *host = nullptr;
        size_t size = 0;
    };
    static constexpr size_t own_streams = 3, most_graphs = 4, most_pinned = 6;
    // The objects of a thread in one context.
    struct Mine {
        Stream streams[own_streams];
        std::vector<Block> blocks;
        std::vector<Graph> graphs;
        std::vector<Pinned> pinned;
        CUmemoryPool pool = nullptr;
    };

    // worker.cpp
    void step();
    void allocate();
    CUresult allocate_as(Block &block);
    bool has_got(CUresult result, const char *what); // false: out of memory
    void release();
    void release_elsewhere();
    void release_from_another_context();
    void use_elsewhere();
    void hand_over();
    void take_over();
    void free(const Block &block, CUstream stream);
    void use(Block &block, CUstream stream);
    void look_into(const Block &block);
    Block take_block() { return taken_from(mine_->blocks, below(mine_->blocks.size())); }

    // questions.cpp
    void ask();
    void ask_about_own();
    void ask_about_shown();
    void ask_how_much();

    // host.cpp
    void pin_or_unpin();
    void use_pinned();
    void register_own();

    // graphs.cpp
    void capture();
    void begin_capture(CUstream stream);
    Graph capture_graph(CUstream stream, const Graph &like);
    size_t size_like(const Block &block);
    Block allocate_in_capture(CUstream stream, const Block &like = {});
    void free_in_capture(const Block &block, CUstream stream);
    void capture_inside(CUstream stream);
    void capture_joined(CUstream stream);
    CUgraph end_capture(CUstream stream);
    void make_executable(Graph &graph);
    void update(Graph &graph, Graph made);
    CUgraphExec capture_free(const Block &left, CUstream stream);
    void launch();
    void expect_refused(CUgraphExec exec, CUstream stream, const char *what);
    void use_left(Graph &graph, CUstream stream);
    void free_left(Graph &graph);
    void free_left_from_another_context(const Block &left);
    void drop_left(Graph &graph);
    void end_graph(const Graph &graph);
    void drop_graph(size_t number);

    // streams.cpp
    void live_in_two_contexts();
    void use_once(CUstream stream, Kind kind);
    void capture_own(CUcontext context, CUcontext joins);
    void end_origin();
    void expect_memory_back();
    bool may_meet();
    template <class Wait, class Finish> void meet(CUstream stream, Wait wait, Finish finish);
    void free_beside_host_function();
    void release_beside_host_function(CUstream stream, CUdevice device);

    // lives.cpp
    void make_stream(Stream &stream);
    void replace_stream();
    void make_or_end_pool();
    void change_pool();
    void live_in_own_context();
    void live_in_common_context();
    void use_a_life(CUstream stream, CUdevice device);
    void reach_from(CUdevice device, CUstream stream);
    void trim();

    void enter(unsigned place); // makes it current
    void wander();              // another context is current: streams know theirs
    CUevent record(CUstream stream);
    void order(CUstream before, CUstream after);
    CUstream any_stream();
    CUstream any_own() { return mine_->streams[below(own_streams)].handle; }
    size_t below(size_t limit) { return chance_.below(limit); }

    World &world_;
    Chance chance_;
    Mine all_[place_count];
    unsigned place_ = 0; // the current one
    Mine *mine_ = nullptr;
};
