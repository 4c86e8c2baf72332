// A block: a stretch of a segment, handed out as one allocation or free as one. The record lies in
// host memory; the device memory that it describes is never read or written.
#pragma once

#include "list.h"
#include "loan.h"
#include "segment.h"
#include "size_tree.h"

#include <cstdint>
#include <vector>

namespace emm::pool {

struct Capture;
struct Domain;
struct HostPool;
struct UseRecord;

enum class State : uint8_t {
    free,   // in the heap's indexes
    live,   // an allocation, or in a magazine
    hole,   // addresses with no memory behind them
    slab,   // cut into slots
    waiting // freed; a use record or a capture has it until it may become free
};

// What neighbours look at comes first, then what a free block's owner does, then its nodes: a call
// touches no more cache lines than it must.
struct alignas(record_alignment) Block {
    State state = State::free;
    Domain *domain = nullptr; // of a free block
    uint64_t begin = 0;
    uint64_t size = 0;
    Block *left = nullptr; // neighbours in the segment
    Block *right = nullptr;
    Segment *segment = nullptr;
    Loan<uint64_t> loan; // of a live block

    // Of a free block: [dirty_begin, dirty_end) may still be in use by `domain`'s work as of `tag`;
    // what lies before and after it is complete. The two are equal in a block that is all complete.
    uint64_t dirty_begin = 0;
    uint64_t dirty_end = 0;
    uint64_t tag = 0;
    Link<Block> pending; // of its domain, oldest tag first; or of the capture that has it

    // Of a live block.
    UseRecord *uses = nullptr;
    HostPool *host = nullptr; // of pinned memory, until its heap has it back

    SizeNode own;  // the whole, for the domain itself and for who is willing to wait for it
    SizeNode low;  // the complete part in front, or the whole of a complete block
    SizeNode high; // the complete part behind

    Slab *slab = nullptr;
    Capture *capture = nullptr; // the graph's private memory; NULL for the rest of us

    uint64_t end() const { return begin + size; }
    bool dirty() const { return dirty_begin != dirty_end; }

    // Most of what a call costs is waiting for what lies in records.
    void expect() const {
        for (unsigned line = 0; line < sizeof(Block); line += 64) {
            __builtin_prefetch(reinterpret_cast<const char *>(this) + line);
        }
    }
    void expect_neighbours() const {
        expect();
        for (const Block *neighbour : {left, right}) {
            if (neighbour) {
                __builtin_prefetch(neighbour);
                __builtin_prefetch(&neighbour->own);
            }
        }
    }
};

static_assert(sizeof(Block) == record_alignment);

inline Block *SizeNode::block() const {
    return reinterpret_cast<Block *>(reinterpret_cast<uintptr_t>(this) / record_alignment *
                                     record_alignment);
}

// Block records, made in batches and used again; they go away with the store.
class BlockStore {
public:
    ~BlockStore();
    BlockStore() = default;
    BlockStore(const BlockStore &) = delete;
    BlockStore &operator=(const BlockStore &) = delete;

    // The next `count` calls of take cannot fail. Throws std::bad_alloc.
    void reserve(size_t count) {
        if (spare_ < count) {
            refill();
        }
    }
    Block *take();
    void give(Block *block);

private:
    void refill();

    std::vector<Block *> batches_;
    Block *free_ = nullptr;
    size_t spare_ = 0;
};

} // namespace emm::pool
