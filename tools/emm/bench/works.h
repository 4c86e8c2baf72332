#pragma once

#include "bench/memory.h"
#include "bench/team.h"
#include "clock.h"
#include "problem.h"
#include "workload/program.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

namespace emm::tool {

// The measured loops. `Memory` is one of bench/memory.h.

template <class Memory> class PairWork : public Work {
public:
    PairWork(Memory memory, size_t size) : memory_(memory), size_(size) {}
    void run(uint64_t pairs) override {
        for (; pairs > 0; pairs--) {
            memory_.release(memory_.allocate(size_), size_);
        }
    }

private:
    const Memory memory_;
    const size_t size_;
};

// The clock readings of the event log for a pair: before and after each of two calls.
class ClockWork : public Work {
public:
    void run(uint64_t pairs) override {
        uint64_t sum = 0;
        for (; pairs > 0; pairs--) {
            for (int i = 0; i < 4; i++) {
                sum += observe::event_ticks();
            }
        }
        sum_ = sum;
    }

private:
    volatile uint64_t sum_ = 0;
};

// Keeps blocks live meanwhile.
template <class Memory> class LiveWork : public Work {
public:
    explicit LiveWork(Memory memory) : memory_(memory) {}
    // Blocks are left where a live set could not be made.
    ~LiveWork() override {
        try {
            release(blocks_);
        } catch (const Failure &) {
        }
    }
    void clean_up() override { release(blocks_); }

protected:
    struct Block {
        typename Memory::Address address;
        size_t size;
    };
    Block allocate(size_t size) const { return {memory_.allocate(size), size}; }
    void release(std::vector<Block> &blocks) const {
        for (const Block &block : blocks) {
            memory_.release(block.address, block.size);
        }
        blocks.clear();
    }

    const Memory memory_;
    std::vector<Block> blocks_;
};

// Replaces random blocks of a live set by blocks of random sizes, which were drawn beforehand. The
// set has `live` blocks, and ends before its bytes exceed `room`; 0: no limit.
template <class Memory> class ReplaceWork : public LiveWork<Memory> {
    using Live = LiveWork<Memory>;

public:
    ReplaceWork(Memory memory, size_t live, size_t room, size_t smallest, size_t largest,
                uint64_t seed)
        : Live(memory), random_(seed) {
        for (size_t i = 0; i < drawn; i++) {
            sizes_.push_back(random_.spread(smallest, largest));
        }
        size_t taken = 0;
        for (size_t i = 0; i < live && (i == 0 || room == 0 || taken + sizes_[i % drawn] <= room);
             i++) {
            taken += sizes_[i % drawn];
            Live::blocks_.push_back(Live::allocate(sizes_[i % drawn]));
        }
    }
    void run(uint64_t pairs) override {
        for (; pairs > 0; pairs--) {
            typename Live::Block &block = blocks_[draw(blocks_.size())];
            memory_.release(block.address, block.size);
            block.size = sizes_[next_++ % drawn];
            try {
                block.address = memory_.allocate(block.size);
            } catch (const Failure &) {
                std::swap(block, blocks_.back());
                blocks_.pop_back();
                throw;
            }
        }
    }

private:
    using Live::blocks_, Live::memory_;
    static constexpr size_t drawn = size_t(1) << 16;

    // One multiplication: the choice must be cheap beside the measured call.
    size_t draw(size_t limit) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<size_t>(((state_ >> 32) * limit) >> 32);
    }

    Random random_;
    uint64_t state_ = 1;
    size_t next_ = 0;
    std::vector<size_t> sizes_;
};

// Pairs while many blocks lie free between blocks in use.
template <class Memory> class HolesWork : public LiveWork<Memory> {
    using Live = LiveWork<Memory>;

public:
    HolesWork(Memory memory, size_t size, size_t holes, uint64_t seed)
        : Live(memory), pairs_(memory, size) {
        Random random(seed);
        for (size_t i = 0; i < 2 * holes; i++) {
            Live::blocks_.push_back(Live::allocate(random.between(1, 16) * 512));
        }
        std::vector<typename Live::Block> kept, every_other;
        for (size_t i = 0; i < 2 * holes; i++) {
            (i % 2 == 0 ? kept : every_other).push_back(Live::blocks_[i]);
        }
        Live::blocks_ = std::move(kept);
        Live::release(every_other);
    }
    void run(uint64_t pairs) override { pairs_.run(pairs); }

private:
    PairWork<Memory> pairs_;
};

// Blocks on their way from one thread to the next.
template <class Parcel> class Mailbox {
public:
    bool put(const Parcel &parcel) {
        const size_t written = written_.load(std::memory_order_relaxed);
        if (written - read_.load(std::memory_order_acquire) == room) {
            return false;
        }
        parcels_[written % room] = parcel;
        written_.store(written + 1, std::memory_order_release);
        return true;
    }
    bool take(Parcel &ret_parcel) {
        const size_t read = read_.load(std::memory_order_relaxed);
        if (written_.load(std::memory_order_acquire) == read) {
            return false;
        }
        ret_parcel = parcels_[read % room];
        read_.store(read + 1, std::memory_order_release);
        return true;
    }

private:
    static constexpr size_t room = 256;
    alignas(64) std::atomic<size_t> written_{0};
    alignas(64) std::atomic<size_t> read_{0};
    alignas(64) Parcel parcels_[room] = {};
};

// Threads in a ring: each allocates, sends its block to the next, and frees the block of the
// previous thread, on the stream where it was allocated.
template <class Memory> class CrossWork : public Work {
public:
    struct Parcel {
        typename Memory::Address address;
        Memory owner;
    };
    struct Ring {
        explicit Ring(uint32_t threads) : boxes(threads) {}
        std::vector<Mailbox<Parcel>> boxes;
    };

    CrossWork(Memory memory, size_t size, std::shared_ptr<Ring> ring, uint32_t thread,
              const std::atomic<bool> &stopping)
        : memory_(memory), size_(size), ring_(std::move(ring)), inbox_(ring_->boxes[thread]),
          outbox_(ring_->boxes[(thread + 1) % ring_->boxes.size()]), stopping_(stopping) {}

    void run(uint64_t pairs) override {
        for (; pairs > 0; pairs--) {
            send({memory_.allocate(size_), memory_});
            release_one();
        }
    }
    void clean_up() override {
        while (release_one()) {
        }
    }

private:
    void send(const Parcel &parcel) {
        while (!outbox_.put(parcel)) {
            if (release_one()) {
                continue;
            }
            if (stopping_.load(std::memory_order_relaxed)) {
                memory_.release(parcel.address, size_); // the next thread has gone already
                return;
            }
            std::this_thread::yield();
        }
    }
    bool release_one() {
        Parcel parcel;
        if (!inbox_.take(parcel)) {
            return false;
        }
        parcel.owner.release(parcel.address, size_);
        return true;
    }

    const Memory memory_;
    const size_t size_;
    const std::shared_ptr<Ring> ring_;
    Mailbox<Parcel> &inbox_;
    Mailbox<Parcel> &outbox_;
    const std::atomic<bool> &stopping_;
};

// No memory at all: sixteen increments of counters that no other thread uses. The counters take
// turns, and the compiler does not know the step. A single counter might stay in a register
// or not, and two runs would then differ by a factor of two.
class CounterWork : public Work {
public:
    void run(uint64_t pairs) override {
        const size_t step = step_;
        size_t which = 0;
        for (; pairs > 0; pairs--) {
            for (int i = 0; i < 16; i++) {
                which = (which + step) % std::size(counters_);
                counters_[which] = counters_[which] + 1;
            }
        }
    }

private:
    alignas(128) volatile uint64_t counters_[16] = {};
    alignas(128) volatile size_t step_ = 3;
};

// The sizes and counts of cases with their own.
constexpr size_t mixed_live = 10'000, mixed_smallest = 256, mixed_largest = size_t(4) << 10;
constexpr size_t large_live = 4'096, large_smallest = size_t(1) << 20,
                 large_largest = size_t(64) << 20;
constexpr size_t holes = 65'536;
constexpr size_t idle_streams = 512, working_streams = 8;

template <class Memory> using RingOf = typename CrossWork<Memory>::Ring;

// The loop of `measurement` for one kind of memory, on one thread. `room`: bytes of memory that a
// live set may take; 0: no limit.
template <class Memory>
std::unique_ptr<Work> make_work(const Measurement &measurement, Memory memory, uint32_t thread,
                                size_t room, const std::shared_ptr<RingOf<Memory>> &ring,
                                const std::atomic<bool> &stopping) {
    if (measurement.name == "mixed") {
        return std::make_unique<ReplaceWork<Memory>>(memory, mixed_live, 0, mixed_smallest,
                                                     mixed_largest, thread + 1);
    }
    if (measurement.name == "large") {
        return std::make_unique<ReplaceWork<Memory>>(memory, large_live / measurement.threads,
                                                     room / measurement.threads, large_smallest,
                                                     large_largest, thread + 1);
    }
    if (measurement.name == "holes") {
        return std::make_unique<HolesWork<Memory>>(memory, measurement.size,
                                                   holes / measurement.threads, thread + 1);
    }
    if (measurement.name == "cross") {
        return std::make_unique<CrossWork<Memory>>(memory, measurement.size, ring, thread,
                                                   stopping);
    }
    return std::make_unique<PairWork<Memory>>(memory, measurement.size);
}

// Every other one of a few streams allocates, and its neighbour frees behind an event, so the
// plugin has to find out the neighbour's order. Many more streams were used once before, and are
// idle.
class IdleWork : public Work {
public:
    IdleWork(emm_context *context, size_t size);
    ~IdleWork() override;
    void run(uint64_t pairs) override;

private:
    PluginMemory memory_on_new_stream();

    emm_context *const context_;
    const size_t size_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<PluginMemory> working_; // on the last of streams_
    CUevent event_ = nullptr;
    size_t next_ = 0;
};

// Pairs while another stream has work that lasts until all pairs of a batch are done, or 50 ms for
// plugins whose frees wait for it. A batch has 10,000 pairs, or as many as `room` has bytes for. A
// host function stands for a kernel. The time is that of the batch, interruptions included.
class BusyWork : public Work {
public:
    BusyWork(PluginMemory memory, size_t size, size_t room, CUcontext context)
        : batch_(std::clamp<uint64_t>(room / size, 1, 10'000)), context_(context),
          pairs_(memory, size) {}
    ~BusyWork() override { end(); }
    uint64_t batch() const override { return batch_; }
    void begin() override;
    void run(uint64_t pairs) override { pairs_.run(pairs); }
    void end() override;

private:
    static void last(void *argument);
    void launch();

    const uint64_t batch_;
    const CUcontext context_;
    Stream stream_{nullptr};
    std::atomic<bool> runs_{false}, over_{true};
    std::atomic<CUresult> launched_{CUDA_SUCCESS};
    std::thread launcher_; // the simulated driver may do the work in the call
    PairWork<PluginMemory> pairs_;
};

} // namespace emm::tool
