// Captures of streams into graphs, and the memory that belongs to a graph. Each run of the graph
// may touch that memory, so no other request gets it until the graph, and every executable graph
// made of it, is gone.
#pragma once

#include "caller.h"
#include "cuda/served_context.h"
#include "freed_memory.h"
#include "graph_queue.h"
#include "stream_pool.h"
#include "streams.h"

#include <condition_variable>
#include <memory>
#include <unordered_map>

namespace emm::pool {

struct Capture {
    uint64_t id = 0;
    uint64_t attempt = 0;    // the attempt whose queue entry tells that the graph is gone
    bool retained = false;   // false: only the thread that makes the record may use it
    bool gone = false;       // the graph and every executable graph made of it are gone
    uint64_t references = 0; // live blocks and use records that point here
    std::unordered_map<uint64_t, StreamPool *> pools; // by the capturing stream's key

    // Freed memory that its graph may use each time it runs.
    List<Block, &Block::pending> blocks;
    SlotQueue slots;
    List<UseRecord, &UseRecord::link> uses;
};

class Captures {
public:
    Captures(ServedContext &context, Streams &streams, StreamOrder &order, FreedMemory &memory);
    ~Captures() { destroyed_->release(); }
    Captures(const Captures &) = delete;
    Captures &operator=(const Captures &) = delete;

    // --- no lock is held ---
    // Makes sure that the capture is known, and that emm learns when its graph is gone.
    emm_status enter(const Caller &caller);

    // --- with the pool's lock ---
    StreamPool &pool_of(const Caller &caller); // throws PluginError
    void hold(BlockOrSlot allocation, Capture &capture);
    bool any_graph_gone() const { return !destroyed_->empty(); }
    void collect(); // handles the entries that graphs have put into the queue
    // A block or use record no longer points to the capture.
    void drop_reference(Capture &capture);
    void forget_all(uint64_t now);

private:
    void finish_entry(uint64_t capture_id, uint64_t attempt, bool retained);
    emm_status retain_on_graph(const Caller &caller, uint64_t attempt);
    static void keep(BlockOrSlot allocation, Capture &capture);
    void finish(Capture &capture);
    void give_back(Block &block);

    ServedContext &context_;
    Streams &streams_;
    StreamOrder &order_;
    FreedMemory &memory_;
    GraphDestroyedQueue *const destroyed_;
    std::condition_variable_any entered_;
    std::unordered_map<uint64_t, std::unique_ptr<Capture>> captures_;
    uint64_t attempts_ = 0; // attempts to retain an object on a graph
};

} // namespace emm::pool
