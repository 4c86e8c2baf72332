#pragma once

#include "trace/builder.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace emm::tool {

constexpr uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

// A block that the imitated program holds.
struct HeldBlock {
    int64_t id = -1;
    uint64_t size = 0;
    uint32_t stream = 0;
};

// Records the allocations of an imitated program.
class Program {
public:
    void work(uint64_t microseconds) { time_ += microseconds; }

    HeldBlock alloc(uint64_t size, uint32_t thread = 0, uint32_t stream = 0) {
        const HeldBlock held = {next_id_++, size, stream};
        live_bytes_ += size;
        row(Op::alloc, thread, stream, held.id, size);
        return held;
    }

    // On the block's own stream, or on another.
    void free(const HeldBlock &held, uint32_t thread = 0) { free_on(held, thread, held.stream); }
    void free_on(const HeldBlock &held, uint32_t thread, uint32_t stream) {
        live_bytes_ -= held.size;
        row(Op::free, thread, stream, held.id, held.size);
    }

    // Newest first, as scopes end.
    void free_all(std::vector<HeldBlock> &blocks, uint32_t thread = 0) {
        for (; !blocks.empty(); blocks.pop_back()) {
            free(blocks.back(), thread);
        }
    }

    // A block that is used and dropped within one step.
    void scratch(uint64_t size, uint32_t thread = 0, uint32_t stream = 0) {
        const HeldBlock held = alloc(size, thread, stream);
        work(5);
        free(held, thread);
    }

    void mark(int64_t step) { row(Op::mark, 0, 0, step, 0); }
    void begin_deferred() { row(Op::defer_begin, 0, 0, -1, 0); }
    void end_deferred() { row(Op::defer_end, 0, 0, -1, 0); }

    uint64_t live_bytes() const { return live_bytes_; }
    Trace finish(std::string name) { return builder_.finish(std::move(name)); }

private:
    void row(Op op, uint32_t thread, uint32_t stream, int64_t id, uint64_t size) {
        builder_.add({++time_, thread, stream, op, id, size});
    }

    TraceBuilder builder_;
    uint64_t time_ = 0;
    uint64_t live_bytes_ = 0;
    int64_t next_id_ = 0;
};

// The same numbers from the same seed everywhere: the C++ standard fixes the engine but not the
// distributions, so these are our own and use whole numbers only.
class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}

    // 0 to limit - 1.
    uint64_t below(uint64_t limit) { return engine_() % limit; }
    // Both ends included.
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool one_in(uint64_t n) { return below(n) == 0; }
    bool percent(uint64_t chance) { return below(100) < chance; }

    // From low to high, with equal chances for each doubling.
    uint64_t spread(uint64_t low, uint64_t high) {
        uint64_t doublings = 0;
        while (low << (doublings + 1) <= high) {
            doublings++;
        }
        const uint64_t begin = low << below(doublings + 1);
        return between(begin, std::min(high, 2 * begin - 1));
    }

private:
    std::mt19937_64 engine_;
};

} // namespace emm::tool
