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
struct FreePool;
struct HostPool;
struct UseRecord;

enum class State : uint8_t {
    free,     // in the heap's indexes
    live,     // an allocation, or in a magazine
    unmapped, // addresses without memory, except idle places of pieces
    vacated,  // a piece's former place, where work of `pool` may use it
    slab,     // cut into slots
    waiting   // freed; a use record or a capture has it until it may become free
};

// The first cache line has the members for neighbours and for a free's check, the second those for
// a stream's own free blocks, because processors fetch the two together. The third has members that
// are mostly written, the fourth those that are seldom used.
struct alignas(record_alignment) Block {
    State state = State::free;
    Zone zone = Zone::large;  // its segment's
    FreePool *pool = nullptr; // of a free block
    uint64_t begin = 0;
    uint64_t size = 0;
    Block *left = nullptr; // neighbours in the segment
    Block *right = nullptr;
    Segment *segment = nullptr;
    Loan<uint64_t> loan; // of a live block

    SizeNode own; // the whole block, for its own free pool and for requests that would wait for it

    // In a free block: `pool`'s work as of `tag` may still use [dirty_begin, dirty_end); the memory
    // before and after it is complete. In a complete block the two are equal.
    uint64_t dirty_begin = 0;
    uint64_t dirty_end = 0;
    uint64_t tag = 0;
    HostPool *host = nullptr; // of pinned memory, until its heap has it back

    // In a list of its free pool, oldest tag first; or of the capture that holds it.
    Link<Block> pending;
    UseRecord *uses = nullptr; // of a live block

    SizeNode low;  // the complete part in front, or the whole of a complete block
    SizeNode high; // the complete part behind

    Slab *slab = nullptr;
    Capture *capture = nullptr; // its memory is private to this graph; NULL: to none

    uint64_t end() const { return begin + size; }
    bool dirty() const { return dirty_begin != dirty_end; }

    // Most of a call's cost is waiting for records to load.
    void expect() const {
        __builtin_prefetch(this);
        __builtin_prefetch(&own);
        __builtin_prefetch(&pending);
    }
    void expect_neighbours() const {
        expect();
        (left ? left : this)->expect(); // without a branch, which would be mispredicted
        (right ? right : this)->expect();
    }
};

static_assert(sizeof(Block) == record_alignment);

inline Block *SizeNode::block() const {
    return reinterpret_cast<Block *>(reinterpret_cast<uintptr_t>(this) / record_alignment *
                                     record_alignment);
}

// Block records, made in batches and reused; they end with the store.
class BlockStore {
public:
    ~BlockStore();
    BlockStore() = default;
    BlockStore(const BlockStore &) = delete;
    BlockStore &operator=(const BlockStore &) = delete;

    // The next `count` calls of take cannot fail. Throws std::bad_alloc.
    void reserve(size_t count) {
        while (spare_ < count) {
            refill();
        }
    }
    Block *take();           // free, alone, without a loan, and in no list or tree
    void give(Block *block); // in that state, except for its neighbours

private:
    void refill();

    std::vector<Block *> batches_;
    Block *free_ = nullptr;
    size_t spare_ = 0;
};

} // namespace emm::pool
