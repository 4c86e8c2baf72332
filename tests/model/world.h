// The world of the steps: contexts, streams and allocations as the program knows them, threads that
// make the calls, and the model that each answer is compared with.
#pragma once

#include "../parts/chance.h"
#include "../parts/ends.h"
#include "../parts/sized.h"
#include "hands.h"
#include "model.h"
#include "settings.h"

#include <emm/cuda.h>
#include <emm/emm.h>
#include <simcuda.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace model {

// The driver's entries that the program itself uses.
struct Driver : emm::cuda::Entries {
    Driver() : Entries(&emm_driver_entry) {
        if (missing()) {
            throw Wrong(std::string("the driver has no ") + missing());
        }
    }
    EMM_CUDA_REQUIRED(cuInit);
    EMM_CUDA_REQUIRED(cuCtxDestroy);
    EMM_CUDA_REQUIRED(cuCtxPopCurrent);
    EMM_CUDA_REQUIRED(cuCtxSetCurrent);
    EMM_CUDA_REQUIRED(cuCtxSynchronize);
    EMM_CUDA_REQUIRED(cuStreamCreate);
    EMM_CUDA_REQUIRED(cuStreamDestroy);
    EMM_CUDA_REQUIRED(cuStreamSynchronize);
    EMM_CUDA_REQUIRED(cuStreamWaitEvent);
    EMM_CUDA_REQUIRED(cuEventCreate);
    EMM_CUDA_REQUIRED(cuEventRecord);
    EMM_CUDA_REQUIRED(cuEventDestroy);
    EMM_CUDA_REQUIRED(cuMemsetD32Async);
    EMM_CUDA_REQUIRED(cuMemcpyDtoHAsync);
    EMM_CUDA_REQUIRED(cuThreadExchangeStreamCaptureMode);
    EMM_CUDA_REQUIRED(cuStreamBeginCapture);
    EMM_CUDA_REQUIRED(cuStreamEndCapture);
    EMM_CUDA_REQUIRED(cuGraphClone);
    EMM_CUDA_REQUIRED(cuGraphDestroy);
    EMM_CUDA_REQUIRED(cuGraphExecDestroy);
    EMM_CUDA_REQUIRED(cuGraphExecUpdate);
    EMM_CUDA_REQUIRED(cuGraphInstantiateWithFlags);
    EMM_CUDA_REQUIRED(cuGraphLaunch);
    emm_cuCtxCreate_3020 create_context = optional<emm_cuCtxCreate_3020>("cuCtxCreate", 3020);
    // The simulated driver's alone.
    decltype(&simcuda_get_counters) get_counters =
        optional<decltype(&simcuda_get_counters)>("simcuda_get_counters", 12000);
    decltype(&simcuda_fail) fail = optional<decltype(&simcuda_fail)>("simcuda_fail", 12000);
    decltype(&simcuda_launch) launch = optional<decltype(&simcuda_launch)>("simcuda_launch", 12000);

    decltype(&simcuda_fault_count) fault_count =
        optional<decltype(&simcuda_fault_count)>("simcuda_fault_count", 12000);

    simcuda_counters counters() const; // zeros on a GPU
    uint64_t refused_ends() const;
};

inline void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        throw Wrong(std::string(what) + ": " + emm_last_error()->text);
    }
}

constexpr size_t no_hand = size_t(-1);

// The number by which the model knows a context's pool.
constexpr size_t account_of(size_t place, size_t pool) {
    return place + pool * 1000;
}

struct Block;
struct Stream;

// The capture of a stream, and then the graphs that are made of it.
struct Graph {
    size_t number = 0; // its number in the model
    size_t context = 0;
    std::vector<CUgraph> graphs; // the graph and its clones
    std::vector<CUgraphExec> execs;
    struct Use {
        Block *block;
        unsigned pattern;
        Stream *stream; // of the capture: nodes of other streams have no order with its own
    };
    std::vector<Use> uses;  // of live memory, which each launch leaves with a pattern
    std::string shape;      // graphs of the same shape can take over each other's executables
    bool launchable = true; // all memory that it uses is live, or held for it
    std::vector<Stream *>
        after;       // their work comes before a launch; of a capture, the capturing streams
    size_t hand = 0; // the thread that began the capture
};

// A stream of one context. Built-in streams have no handle of their own.
struct Stream {
    size_t context = 0;
    CUstream handle = nullptr;
    size_t hand = no_hand; // the thread of a per-thread stream
    bool registered = false;
    bool blocking = false;
    Graph *capture = nullptr; // in progress
    bool announced = false;   // it is

    bool built_in() const { return reinterpret_cast<uintptr_t>(handle) <= 2; }
};

// Memory of the program's own that is pinned.
struct Owned {
    explicit Owned(size_t size) : bytes(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)) {}
    ~Owned() { std::free(bytes); }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    void *const bytes;
    int finalized = 0;
};

struct Peer; // another process

// Perhaps: a resume of several pools has failed, and had no memory to bring back to this pool.
enum class Paused { no, perhaps, yes };

// An export of the peer.
struct Offer {
    emm_ipc_handle handle = {};
    size_t size = 0;
    unsigned pattern = 0; // its content; 0: not known
    bool is_over = false; // the export
};

// A piece of the program's memory: by its address, or by a handle.
struct Block {
    size_t context = 0;
    size_t pool = 0; // a named pool, from 1 on; 0: the context's own
    Kind kind = Kind::device;
    size_t size = 0;
    uint32_t flags = 0;    // EMM_HOST_* or EMM_ATTACH_*
    emm_deviceptr ptr = 0; // for the device; host memory has one address for both
    void *host = nullptr;
    Stream *home = nullptr;       // all uses are ordered before later work there
    unsigned pattern = 0;         // left by the latest use; 0: none yet
    std::shared_ptr<Owned> owned; // of Kind::registered: the program's own bytes
    std::shared_ptr<Offer> offer; // of Kind::opened

    bool by_handle = false;
    std::vector<emm_memory *>
        references;                   // the first is the handle itself; others are views and copies
    emm_stream free_stream = nullptr; // as the handle knows the stream
    size_t free_hand = no_hand;       // the thread of that per-thread stream

    bool is_plain() const { return references.size() <= 1; } // only it has the memory
};

// A context as emm and as CUDA know it.
struct Place {
    int device = 0;
    CUcontext cuda = nullptr;
    emm_context *emm = nullptr;
    std::array<emm_context *, 2> named = {}; // pools; NULL: not asked for yet
    std::array<Paused, 3> paused = {};       // its own memory, and the pools'
    std::vector<std::unique_ptr<Stream>> streams;

    emm_context *pool(size_t number) const { return number ? named[number - 1] : emm; }
    // Memory that no work may use: of the pool, or of any pool.
    bool is_paused(size_t number) const { return paused[number] != Paused::no; }
    bool any_paused() const { return paused != std::array<Paused, 3>{}; }
    size_t sections = 0; // open deferred sections
    // Freed memory of the context may be in use in another context, without an order with its own
    // work.
    bool freed_abroad = false;
};

constexpr uint64_t driver_step = uint64_t(32) << 20; // by which memory pools grow; pages are less

class World {
public:
    World(const Settings &settings, size_t seed);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    void step(size_t number);
    void judge();                           // the statistics of all contexts
    void return_all_memory();               // all goes back, and nothing may be left
    size_t calls() const { return calls_; } // of emm's

    // --- for the steps

    const Settings settings;
    bool is_beside = false; // two threads free and allocate at once
    const Driver driver;
    Model model;
    Hands hands;
    Chance chance{0}; // of this step
    std::vector<Place> places;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::unique_ptr<Graph>> graphs;
    struct Inert { // a reference that outlives its memory
        emm_memory *memory;
        std::shared_ptr<Owned> owned;
    };
    std::vector<Inert> inert;
    std::shared_ptr<Peer> peer; // NULL: the last peer has died
    std::vector<std::shared_ptr<Offer>> offers;

    size_t below(size_t limit) { return chance.below(limit); }
    bool one_in(size_t limit) { return chance.one_in(limit); }
    size_t any_hand() { return below(hands.count()); }
    size_t any_place() { return below(places.size()); }
    size_t hand_of(const Stream &stream);
    Stream &any_stream(size_t place); // one that does not capture
    Stream *any_capturing();
    // Whether an unannounced capture goes on, beside which some calls are forbidden.
    bool unannounced(size_t place) const;
    bool unannounced() const;
    emm_context *pool_of(const Block &block) const {
        return places[block.context].pool(block.pool);
    }
    size_t any_pool(size_t place); // an existing one
    bool is_paused(const Block &block) const {
        return block.kind == Kind::device && places[block.context].is_paused(block.pool);
    }
    bool waits_when_paused(size_t pool) const { return model.promises().waits && pool == 2; }
    // One of the blocks whose home does not capture. NULL: no such block.
    Block *any_block(bool (*is)(const Block &) = [](const Block &) { return true; });
    Block *any_usable(bool (*is)(const Block &) = [](const Block &) { return true; });
    Block *any_plain() {
        return any_block([](const Block &block) { return block.is_plain(); });
    }
    size_t next_graph() { return ++last_graph_; }
    unsigned next_pattern() { return ++last_pattern_; }

    // Calls emm on a thread, with any current context. `done` says whether the call has succeeded,
    // and throws if a failure had no reason.
    emm_status call(size_t hand, const std::function<emm_status()> &make);
    // The same. If a fault has failed the call, calls again without a fault.
    void carry_out(size_t hand, const std::function<emm_status()> &make, const char *what);
    bool done(emm_status status, const char *what, emm_status may_be = EMM_OK);
    void refused(emm_status status, emm_status expected, const char *what);
    // Calls the driver as the program's own, which invalidates no capture.
    void drive(size_t place, size_t hand, const std::function<void()> &make);

    // NULL: the allocation has failed, as it may. `stream` may be EMM_STREAM_UNORDERED.
    Block *allocate(Block block, Stream &home, emm_stream stream, size_t hand);
    bool free(Block *block, emm_stream stream, size_t hand, const Graph *capture = nullptr);
    bool free(Block *block, const Stream &stream) {
        return free(block, stream.handle, hand_of(stream), stream.capture);
    }
    void come_home(Block &block); // from a stream of another context
    void rehome(const Stream &stream, Stream &heir);
    void use(Block &block, Stream &stream); // leaves another pattern; or the capture will
    void launch(Graph &graph, CUgraphExec exec, Stream &stream);
    void end_capture(Stream &stream);
    void look(const Block &block); // waits, and finds the pattern
    void order(const Stream &before, const Stream &after);
    Stream &make_stream(size_t place, bool registered);
    void end_stream(Stream &stream, Stream &heir);
    void synchronize(size_t place);
    void synchronize(const Stream &stream);
    emm_stats stats_of(size_t place, size_t pool = 0);
    Account device_account(int device);
    void forget(Block *block);
    void give_up_opened(Block *block);
    void leave_inert(Block *block); // its references stay
    void release_inert(size_t number);
    void adopt(size_t place, emm_memory *memory);
    void destroy_graphs(size_t place);
    void forget_place(size_t place); // its memory has gone
    void forget_pool(size_t place, size_t pool);
    void resume(size_t place, size_t pool, uint32_t flags); // one pool, or with 0 all; may fail
    void make_place(size_t number);
    void leave_context();                       // the context is no longer any thread's current one
    size_t give_to(const emm_context *context); // a pressure callback

private:
    emm_status request(Block &block, emm_stream stream);
    emm_status give_back(const Block &block, size_t size, emm_stream stream);
    emm_status expect_pause(const Block &block, emm_status status);
    Block *any_of(const std::vector<Block *> &found) {
        return found.empty() ? nullptr : found[below(found.size())];
    }
    void judge_handle(const Block &block);
    void judge_pool(size_t place, size_t pool);
    void end_place(Place &place);
    void resume_all();
    void empty_pool(size_t place, size_t pool);

    simcuda_counters before_ = {};
    uint64_t refused_ends_ = 0;
    size_t calls_ = 0;
    bool is_calm_ = false;     // no faults
    bool has_faulted_ = false; // the latest call
    unsigned last_pattern_ = 0;
    size_t last_graph_ = 0;
};

// One kind of step: `act` may find nothing to do.
struct Action {
    const char *name;
    size_t weight;
    size_t Settings::*group; // NULL: always
    void (*act)(World &world);
};
extern const std::vector<Action> memory_actions, host_actions, handle_actions, graph_actions,
    life_actions, peer_actions, pause_actions;

int run_peer(); // the other process; returns the exit status

// Records the latest steps, which a failure prints, even one that ends the process.
void begin_steps(const Settings &settings, size_t seed);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tell_steps(size_t last);
void tell_steps_at_a_crash();

} // namespace model
