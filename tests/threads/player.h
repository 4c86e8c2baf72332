#pragma once

#include "turn.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <vector>

// A block on its way through its uses.
struct Held {
    emm_deviceptr ptr = 0;
    size_t size = 0;
    CUstream stream = nullptr; // all its uses are ordered before what comes next there
    unsigned pattern = 0;      // that the last of them leaves
};

// What the players share.
struct Game {
    explicit Game(emm_context *its_context, CUcontext its_cuda)
        : context(its_context), cuda_context(its_cuda), turn(cuda, its_context) {}

    const Cuda cuda;
    emm_context *const context;
    const CUcontext cuda_context;
    const Turn turn;
    std::vector<CUstream> common; // streams that everybody uses, registered
    std::atomic<uint64_t> steps_left{0};
    std::atomic<unsigned> last_pattern{0};
    std::atomic<bool> stop{false};
    // A capture that nobody announced is promised peace from calls without a stream only.
    std::shared_mutex unordered_calls;

    void put(const Held &block);
    std::optional<Held> take(); // freed on its common stream by whoever comes by

private:
    std::mutex mutex_;
    std::deque<Held> parcels_;
};

// One thread: streams of its own that come and go, blocks that wander over them and the common
// ones, further uses, frees of every kind, captures, and graphs.
class Player {
public:
    Player(Game &game, unsigned number);
    void play(); // until no steps are left
    void finish();

private:
    struct Stream {
        CUstream handle = nullptr;
        bool registered = false;
    };
    struct Graph {
        CUgraphExec exec = nullptr;
        CUstream last = nullptr; // on which it ran
    };
    static constexpr size_t own_streams = 3, most_held = 48, most_graphs = 4;

    void step();
    void allocate();
    void release();
    void release_elsewhere();
    void release_unordered();
    void release_after_use_elsewhere();
    void pass_on();
    void capture(bool announced);
    void replay();
    void drop_graph(size_t number);
    void replace_stream();
    void trim();

    void order(CUstream before, CUstream after);
    void use(Held &block, CUstream stream);
    void free(const Held &block, emm_stream stream);
    Held take_random();
    CUstream any_stream();
    CUstream own_stream() { return streams_[below(own_streams)].handle; }
    void make_stream(Stream &stream);
    void drop_stream(Stream &stream);
    size_t below(size_t limit) { return random_() % limit; }
    size_t any_size();

    Game &game_;
    const Cuda &cuda_;
    std::mt19937_64 random_;
    Stream streams_[own_streams];
    std::vector<Held> held_;
    std::vector<Graph> graphs_;
};
