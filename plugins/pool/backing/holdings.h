// The device memory that the pool holds, what the program needs of it, and how much more may be
// held. The pool's lock is held.
#pragma once

#include "backing/options.h"
#include "cache/thread_caches.h"
#include "policy/growth.h"

namespace emm::pool {

class Holdings {
public:
    Holdings(const Options &options, const DeviceMemory &memory, const ThreadCaches &caches,
             uint64_t device_bytes)
        : options_(options), memory_(memory), caches_(caches), device_bytes_(device_bytes) {}
    Holdings(const Holdings &) = delete;
    Holdings &operator=(const Holdings &) = delete;

    // Bytes that the driver is being asked for, from its making to its end. They count before the
    // driver is asked, so that `max` holds whatever other threads do meanwhile.
    class Arrival {
    public:
        Arrival(Holdings &holdings, uint64_t bytes) : holdings_(holdings), bytes_(bytes) {
            holdings_.arriving_ += bytes_;
        }
        ~Arrival() { holdings_.arriving_ -= bytes_; }
        Arrival(const Arrival &) = delete;
        Arrival &operator=(const Arrival &) = delete;

    private:
        Holdings &holdings_;
        const uint64_t bytes_;
    };

    // --- held ---
    void add(uint64_t bytes); // which the driver has given
    void remove(uint64_t bytes) { reserved_ -= bytes; }
    // With what is paused: its addresses, its rest and its place below `max` are kept.
    uint64_t reserved() const { return reserved_; }
    uint64_t held() const { return reserved_ - paused_; }
    void pause(uint64_t bytes) { paused_ += bytes; }
    void resume(uint64_t bytes) { paused_ -= bytes; }
    uint64_t paused() const { return paused_; }
    uint64_t peak_reserved() const { return peak_reserved_; }
    uint64_t claimed() const { return reserved_ + arriving_; }
    // The most that may ever be held: `max`, or what the device has.
    uint64_t limit() const { return std::min(options_.max, device_bytes_); }
    bool is_limited_by_max() const {
        return options_.max != UINT64_MAX && options_.max <= device_bytes_;
    }
    // Below `max`, once `leaving` bytes have gone.
    bool has_room_for(uint64_t bytes, uint64_t leaving = 0) const;

    // --- needed ---
    void count_request(uint64_t size) { requested_ += size; }
    void count_served() { most_taken_ = most_with(0); }
    uint64_t requested() const { return requested_; } // bytes, by requests beyond magazines
    // Freed memory waits for further uses, or for a capture.
    void begin_wait(uint64_t bytes) { waiting_ += bytes; }
    void end_wait(uint64_t bytes) { waiting_ -= bytes; }
    void forget_memory() { waiting_ = paused_ = 0; } // which no request needs any more
    // The most that was ever taken, if this request is served. One that fails leaves no trace.
    uint64_t most_with(uint64_t bytes) const;
    uint64_t taken() const { return memory_.counts.taken(); }

    // --- idle ---
    uint64_t pending() const;      // freed, and of no use to an ordinary request yet
    uint64_t cached() const;       // neither taken nor pending
    uint64_t idle_at_most() const; // if all that is not in use could be had as one
    // How much may be idle: up to release_threshold, and no more than `max` leaves, which may have
    // become less than what is held.
    bool may_be_too_idle() const {
        return options_.release_threshold != UINT64_MAX || reserved_ > options_.max;
    }
    uint64_t most_idle() const;
    Allowance allowance(uint64_t bytes) const;
    // Whether a request waits a while for memory that was freed with no stream: one that has none.
    bool awaits_pending(const StreamPool &pool, uint64_t bytes) const;

private:
    uint64_t pending_not_taken() const;

    const Options &options_;
    const DeviceMemory &memory_;
    const ThreadCaches &caches_;
    const uint64_t device_bytes_;
    uint64_t reserved_ = 0;
    uint64_t paused_ = 0;   // of that, what the driver has back until a resume
    uint64_t arriving_ = 0; // what the driver is being asked for, beside that
    uint64_t peak_reserved_ = 0;
    uint64_t waiting_ = 0;
    uint64_t requested_ = 0;
    uint64_t most_taken_ = 0; // when a slow request was last served
};

} // namespace emm::pool
