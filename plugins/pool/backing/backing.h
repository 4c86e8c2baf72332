// Where the device memory of a pool comes from: segments of cuMemAlloc, or pieces of memory behind
// reserved addresses. The slow path uses this interface for both.
//
//   segments.cpp      growth=segment
//   pages.cpp         growth=vmm
//   pinned_memory.h   host memory, and why it is no third implementation
//
// The pool's lock is held, except where said otherwise. Functions that take a Lock & may let go of
// it for a driver call; their callers look at everything anew afterwards.
#pragma once

#include "backing/holdings.h"
#include "backing/moves.h"
#include "order/stream_order.h"
#include "policy/copies.h"

#include <memory>
#include <vector>

namespace emm::pool {

class HostCopy;

// The order for a pause.
struct PauseRequest {
    bool keeps;                  // copies the content
    std::vector<Range> exported; // stays as it is
};

// A range of live memory, as an importer will open it.
struct ExportedRange {
    uint64_t offset = 0; // from the beginning of the memory that the importer opens
    uint64_t size = 0;
    uint64_t base = 0, bytes = 0;    // of the segment
    std::vector<emm_ipc_part> parts; // of memory behind addresses
};

class Backing {
public:
    // The backing that the options ask for, or the best one for the device; a line in the log says
    // which, and why. Throws PluginError.
    static std::unique_ptr<Backing> make(const Options &options, StreamOrder &order,
                                         DeviceMemory &memory, ThreadCaches &caches, Moves &moves);
    Backing(const Options &options, StreamOrder &order, DeviceMemory &memory, ThreadCaches &caches,
            Moves &moves)
        : context_(order.context()), options_(options), heap_(memory.heap), order_(order),
          caches_(caches), moves_(moves),
          holdings_(options, memory, caches, context_.device_bytes) {}
    virtual ~Backing();
    Backing(const Backing &) = delete;
    Backing &operator=(const Backing &) = delete;

    Holdings &holdings() { return holdings_; }

    // --- a block for a request of `bytes` ---
    // A block that the heap has for `pool` at once; NULL if there is none.
    virtual Block *take(StreamPool &pool, uint64_t bytes) = 0;
    // Whether to grow before any stream is asked about its freed memory.
    virtual bool grows_first(uint64_t bytes) const = 0;
    // A block from the driver, or from idle memory elsewhere, for the caller's stream. NULL:
    // `result` says why.
    virtual Block *grow(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                        CUresult &result) = 0;
    // The same once the driver has no more: all idle memory makes room first. `again`: memory of
    // another thread has arrived since the last try.
    virtual Block *reclaim(Lock &lock, StreamPool &pool, const Caller &caller, uint64_t bytes,
                           bool again, CUresult &result) = 0;
    virtual const char *calls() const = 0; // to the driver, for the text of an error

    // --- memory as such ---
    // Called before the first request; the memory serves requests of every size.
    virtual CUresult take_initial(Lock &lock, uint64_t bytes) = 0;
    virtual bool may_have_idle() const = 0;
    // Gives idle memory back to the driver until no more than `keep` bytes are cached. Returns the
    // bytes given back. Unless `complete_only`, memory with incomplete work may go too, where the
    // driver waits for that work.
    virtual uint64_t release_idle(Lock &lock, uint64_t keep, bool complete_only) = 0;
    // Gives back segments that the heap has let go of and the program does not use. The caller
    // holds no lock.
    virtual void give_back(List<Segment, &Segment::all> segments) = 0;
    void begin_end() { ends_ = true; } // the next give_back is the last, and keeps nothing

    // --- pause: no call but a free uses memory meanwhile, and all that was freed is complete ---
    virtual bool can_pause(bool) const { return false; } // keeping the content
    // After a failure, only idle memory has gone back, and the caller drops the copy.
    // CUDA_ERROR_NOT_PERMITTED: returns are deferred. Throws std::bad_alloc.
    virtual CUresult pause(Lock &, const PauseRequest &, HostCopy &) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    // Keeps the copy's memory. Changes nothing if it fails. Throws std::bad_alloc.
    virtual CUresult resume(Lock &, HostCopy &) { return CUDA_SUCCESS; }

    // --- other processes and devices ---
    virtual ExportedRange range_of(const Segment &segment, uint64_t begin, uint64_t size) const = 0;
    // No lock is held by the next four.
    virtual emm_status serve(const ExportedRange &range, emm_ipc_handle &ret_handle) = 0;
    virtual emm_status withdraw(const emm_ipc_handle &handle) = 0;
    virtual bool serves_access(uint32_t flags) const = 0;
    virtual emm_status set_access(int32_t peer, uint32_t flags) = 0;

protected:
    // Waits a while for incomplete memory until `has_enough` returns true. Returns a block if the
    // wait alone has made one.
    Block *await_idle(Lock &lock, StreamPool &pool, uint64_t bytes,
                      const std::function<bool()> &has_enough);

    ServedContext &context_;
    const Options &options_;
    Heap &heap_;
    StreamOrder &order_;
    ThreadCaches &caches_;
    Moves &moves_;
    Holdings holdings_;
    List<Segment, &Segment::all> refused_; // refused by the driver: still held, and tried again
    bool ends_ = false;
};

} // namespace emm::pool
