#pragma once

#include "../parts/chance.h"
#include "traffic.h"

// One thread: streams of its own that come and go in every context, blocks that move over them and
// the common streams and on to other threads, further uses, frees of every kind, captures and
// graphs, pinned memory, deferred sections and trims.
class Worker {
public:
    Worker(Traffic &traffic, size_t seed);
    void run(size_t steps); // or until the traffic stops
    void finish();          // gives everything back

private:
    struct Stream {
        CUstream handle = nullptr;
        bool registered = false;
    };
    struct Graph {
        CUgraphExec exec = nullptr;
        CUstream last = nullptr; // the stream of its last run
    };
    struct Pinned {
        void *host = nullptr;
        uint32_t flags = 0;
    };
    static constexpr size_t own_streams = 3, most_graphs = 4, most_pinned = 8;
    // The objects of a thread in one context.
    struct Place {
        Stream streams[own_streams];
        std::vector<Block> blocks;
        std::vector<Graph> graphs;
        std::vector<Pinned> pinned;
    };

    void step();
    void allocate();
    void release();
    void release_elsewhere();
    void release_unordered();
    void release_after_use_elsewhere();
    void use_elsewhere();
    void hand_over();
    void take_over();
    void capture();
    bool allocate_in_capture(CUstream stream, Block &block);
    CUgraphExec end_capture(const Stream &stream);
    void replay();
    void drop_graph(size_t number);
    void replace_stream();
    void pin_or_unpin();
    bool given(emm_status status, const char *what);
    void section();
    void look_at_statistics();
    void trim();

    void enter(size_t context); // makes it current
    void order(CUstream before, CUstream after);
    CUevent record(CUstream stream);
    bool record_use(Block &block, CUstream stream);
    void use(Block &block, CUstream stream);
    void look_into(const Block &block);
    void free(const Block &block, emm_stream stream);
    void unpin(const Pinned &pinned);
    Block take_random();
    CUstream any_stream();
    CUstream any_common() { return at_->common[below(at_->common.size())]; }
    Stream &own_stream() { return mine_->streams[below(own_streams)]; }
    void make_stream(Stream &stream);
    void drop_stream(Stream &stream);
    size_t below(size_t limit) { return chance_.below(limit); }
    emm_context *emm() const { return at_->gpu.emm; }

    Traffic &traffic_;
    const Cuda &cuda_;
    Chance chance_;
    std::vector<Place> places_; // by context
    size_t context_ = 0;        // the current one
    Context *at_ = nullptr;
    Place *mine_ = nullptr;
};
