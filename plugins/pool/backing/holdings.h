// The memory that the pool holds for device memory, the program's need of it, and how much more may
// be held. Some of it may be spilled: host memory, which `max` does not bound. The pool's lock is
// held.
#pragma once

#include "backing/options.h"
#include "cache/thread_caches.h"
#include "policy/growth.h"

namespace emm::pool {

class Holdings {
public:
    Holdings(const Options &options, const DeviceMemory &memory, const ThreadCaches &caches,
             const uint64_t &device_bytes)
        : options_(options), memory_(memory), caches_(caches), device_bytes_(device_bytes) {}
    Holdings(const Holdings &) = delete;
    Holdings &operator=(const Holdings &) = delete;

    // While it lives, its bytes are being asked from the driver. They count before the driver is
    // asked, so that `max` holds whatever other threads do meanwhile.
    class Arrival {
    public:
        Arrival(Holdings &holdings, uint64_t bytes, bool spilled = false)
            : arriving_(spilled ? holdings.spilling_ : holdings.arriving_), bytes_(bytes) {
            arriving_ += bytes_;
        }
        ~Arrival() { arriving_ -= bytes_; }
        Arrival(const Arrival &) = delete;
        Arrival &operator=(const Arrival &) = delete;

    private:
        uint64_t &arriving_;
        const uint64_t bytes_;
    };

    // --- held ---
    void add(uint64_t bytes, bool spilled = false); // memory that the driver has given
    void remove(uint64_t bytes, bool spilled = false);
    // Includes paused memory: its addresses, its remainder and its part of `max` are kept.
    uint64_t reserved() const { return reserved_; }
    uint64_t held() const { return reserved_ - paused_; }
    void pause(uint64_t bytes) { paused_ += bytes; }
    void resume(uint64_t bytes) { paused_ -= bytes; }
    uint64_t paused() const { return paused_; }
    uint64_t most_reserved() const { return most_reserved_; } // ever
    uint64_t peak_reserved() const { return peak_reserved_; } // since the last reset_peak
    void reset_peak() { peak_reserved_ = reserved_; }
    // Device memory held, and on its way.
    uint64_t claimed() const { return of_device() + arriving_; }
    uint64_t of_device() const { return reserved_ - spilled_; } // including paused memory
    uint64_t spilled() const { return spilled_; }
    void allow_spill(uint64_t most) { most_spilled_ = most; } // otherwise nothing spills
    uint64_t most_spilled() const { return most_spilled_; }
    // The most device memory that may ever be held: `max`, or the device's memory.
    uint64_t limit() const { return std::min(options_.max, device_bytes_); }
    uint64_t request_limit() const { return std::max(limit(), most_spilled_); }
    bool is_limited_by_max() const {
        return options_.max != UINT64_MAX && options_.max <= device_bytes_;
    }
    // Whether the bytes may be taken once `leaving` bytes have gone: by `max`, or by the most that
    // may be spilled.
    bool has_room_for(uint64_t bytes, uint64_t leaving = 0, bool spilled = false) const;

    // --- needed ---
    void count_request(uint64_t size) { requested_ += size; }
    void count_served() { most_taken_ = most_with(0); }
    // Bytes of the requests that no magazine served.
    uint64_t requested() const { return requested_; }
    // Freed memory waits for further uses, or for a capture.
    void begin_wait(uint64_t bytes) { waiting_ += bytes; }
    void end_wait(uint64_t bytes) { waiting_ -= bytes; }
    void forget_memory() { waiting_ = paused_ = 0; } // no request needs this memory any more
    // The most ever taken, if this request is served. A failed request leaves no trace.
    uint64_t most_with(uint64_t bytes) const;
    uint64_t taken() const { return memory_.counts.taken(); }

    // --- idle ---
    uint64_t pending() const; // freed, and of no use to an ordinary request yet
    uint64_t cached() const;  // neither taken nor pending
    uint64_t
    cached_of_device() const; // the device's part of that: with growth=vmm, without spilled pages
    uint64_t idle_at_most() const; // the largest block that all unused memory could make
    // How much may be idle: up to release_threshold, and no more than `max` leaves. `max` may have
    // become less than the bytes held.
    bool may_be_too_idle() const {
        return options_.release_threshold != UINT64_MAX || of_device() > options_.max;
    }
    uint64_t most_idle() const;
    Allowance allowance(uint64_t bytes) const;
    Allowance spill_allowance() const;
    // Whether a request waits a while for unordered frees; only requests with no stream do.
    bool awaits_pending(const StreamPool &pool, uint64_t bytes) const;

private:
    uint64_t pending_not_taken() const;

    const Options &options_;
    const DeviceMemory &memory_;
    const ThreadCaches &caches_;
    const uint64_t &device_bytes_;
    uint64_t reserved_ = 0;
    uint64_t paused_ = 0;   // of `reserved_`, memory that the driver has back until a resume
    uint64_t arriving_ = 0; // being asked from the driver, besides `reserved_`
    uint64_t spilled_ = 0;  // of `reserved_`
    uint64_t spilling_ = 0; // as arriving_
    uint64_t most_spilled_ = 0;
    uint64_t most_reserved_ = 0;
    uint64_t peak_reserved_ = 0;
    uint64_t waiting_ = 0;
    uint64_t requested_ = 0;
    uint64_t most_taken_ = 0; // when a slow request was last served
};

} // namespace emm::pool
