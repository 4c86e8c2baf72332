// One capture of a stream into a graph, and the memory that is the graph's for as long as it lives.
#pragma once

#include "domain.h"

#include <memory>
#include <unordered_map>

namespace emm::pool {

// Where graphs say that they are gone. The driver runs a user object's destructor on a thread of
// its own choosing, where no driver call is allowed, and perhaps after the manager has gone: so
// all it does is push its fate here, and the last of both sides deletes.
struct Fate {
    class Mailbox *mailbox = nullptr;
    uint64_t capture_id = 0;
    uint64_t attempt = 0; // of retaining it on the graph: what failed says nothing about the graph
    Fate *next = nullptr;
};

class Mailbox {
public:
    static Mailbox *make() { return new Mailbox; }
    void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
    void release();
    void post(Fate *fate);
    Fate *collect() { return letters_.exchange(nullptr, std::memory_order_acquire); }
    bool empty() const { return !letters_.load(std::memory_order_relaxed); }

private:
    Mailbox() = default;
    ~Mailbox();
    std::atomic<Fate *> letters_{nullptr};
    std::atomic<uint32_t> references_{1};
};

struct Capture {
    uint64_t id = 0;
    uint64_t attempt = 0;    // whose fate tells that the graph is gone
    bool retained = false;   // until then its maker alone may use it
    bool gone = false;       // its graph, and every executable graph made of it
    uint64_t references = 0; // live blocks and use records that point here
    std::unordered_map<uint64_t, Domain *> domains; // by the capturing stream's key

    // Freed memory that its graph may use each time it runs.
    List<Block, &Block::pending> blocks;
    SlotQueue slots;
    List<UseRecord, &UseRecord::link> uses;
};

} // namespace emm::pool
