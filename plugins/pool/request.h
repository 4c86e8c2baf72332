// A request for device memory that the calling thread's magazine could not serve: its caller and
// size, and the state of the search.
//
// The request holds the pool's lock from its first look at free memory to its end. Only the stages
// let go of the lock, for their driver calls; the next look sees everything anew.
#pragma once

#include "manager.h"
#include "slow_call.h"

#include <optional>

namespace emm::pool {

class Manager::Request {
public:
    // No lock is held. `magazine`: the calling thread's magazine for the stream, which has no such
    // memory; or NULL.
    Request(Manager &manager, size_t size, emm_stream stream, Magazine *magazine);
    emm_status serve(emm_deviceptr *ret_ptr);

private:
    bool is_impossible();
    bool exceeds_limit() const;
    emm_status identify();

    // --- free memory: the address, or 0 ---
    emm_deviceptr take_for_known_stream();
    emm_deviceptr take_for_identified_stream();
    emm_deviceptr take_free(Magazine *magazine);
    bool take_ahead(Magazine &magazine);
    BlockOrSlot take_allocation();
    Slot *slot_of_new_slab(Block &block, unsigned index);
    emm_deviceptr account(BlockOrSlot allocation);

    // --- the search ---
    emm_deviceptr search();
    BlockOrSlot find_allocation();
    Block *find_block(); // of bytes_, or NULL
    Slot *take_any_slot();
    bool enter_context();

    // The stages of find_block.
    Block *empty_own_magazines();
    Block *query_unordered();
    Block *grow_unasked() { return grows_unasked() ? grow() : nullptr; }
    Block *query_best_fit();
    Block *query_all_streams();
    Block *wait_for_stream();
    Block *empty_all_magazines();
    Block *grow() { return manager_.backing_->grow(lock_, *pool_, caller_, bytes_, result_); }
    Block *reclaim();

    Block *take() { return manager_.backing_->take(*pool_, bytes_); }
    Block *take_from_any_zone();
    Block *find_offered(bool with_event) const;
    bool grows_unasked() const;
    bool is_exhausted() const { return pool::is_exhausted(result_); }

    // --- how it fails; no lock is held afterwards ---
    emm_status refuse();
    emm_status fail();

    Manager &manager_;
    const size_t size_;
    const emm_stream stream_;
    Magazine *magazine_;         // NULL once its miss is noted
    Caller caller_;              // set once the stream is identified
    StreamPool *pool_ = nullptr; // the stream's
    uint64_t bytes_ = 0;         // of the block to find
    CUresult result_ = CUDA_SUCCESS;
    bool lacks_host_memory_ = false;

    const SlowCall call_;
    std::optional<const Current> current_; // set by the first stage that may need it
    Lock lock_;                            // let go of first
};

} // namespace emm::pool
