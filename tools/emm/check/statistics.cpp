// Statistics agree with the requests, with each other and with the driver.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

#include <algorithm>

namespace emm::tool::check {
namespace {

void equal(const char *what, uint64_t found, uint64_t expected) {
    expect(found == expected, "{} is {}: expected {}", what, found, expected);
}

void check_sums(const emm_stats &stats, uint64_t bytes, uint64_t count) {
    equal("live_bytes", stats.live_bytes, bytes);
    equal("live_count", stats.live_count, count);
    equal("allocations less frees", stats.allocations - stats.frees, count);
    expect(stats.peak_live_bytes >= stats.live_bytes, "peak_live_bytes is {}, live_bytes {}",
           stats.peak_live_bytes, stats.live_bytes);
    expect(stats.reserved_bytes >= stats.live_bytes, "reserved_bytes is {}, live_bytes {}",
           stats.reserved_bytes, stats.live_bytes);
    expect(stats.peak_reserved_bytes >= stats.reserved_bytes,
           "peak_reserved_bytes is {}, reserved_bytes {}", stats.peak_reserved_bytes,
           stats.reserved_bytes);
}

void statistics(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().get_stats, "it has no get_stats");
    const BareManager manager(bare);
    std::vector<std::pair<emm_deviceptr, size_t>> blocks;
    uint64_t bytes = 0;
    for (const size_t size : {1, 1000, 33333, 444444, 7654321}) {
        blocks.emplace_back(manager.alloc(size), size);
        bytes += size;
        check_sums(manager.stats(), bytes, blocks.size());
    }
    emm_deviceptr ptr = 0;
    EMM_SLOT(manager, memalloc, size_t(1) << 50, EMM_STREAM_UNORDERED, &ptr);
    equal("failures", manager.stats().failures, 1);
    EMM_SLOT(manager, memfree, 0x7000, size_t(256), EMM_STREAM_UNORDERED); // refused: no free
    check_sums(manager.stats(), bytes, blocks.size());
    while (!blocks.empty()) {
        manager.free(blocks.back().first, blocks.back().second);
        bytes -= blocks.back().second;
        blocks.pop_back();
        check_sums(manager.stats(), bytes, blocks.size());
    }
}

// A new manager's reserved bytes, against the memory that the driver has handed out since `before`.
class Books {
public:
    Books(const BareManager &manager, const simcuda_counters &before)
        : manager_(manager), before_(before) {
        idle_ = rest();
    }

    // Live, cached and pending memory are parts of the reserved memory, and no two of them overlap.
    uint64_t rest() const {
        const emm_stats stats = manager_.stats();
        uint64_t left = stats.reserved_bytes;
        for (const uint64_t part : {stats.live_bytes, stats.cached_bytes, stats.pending_bytes}) {
            expect(part <= left,
                   "reserved_bytes is {}: less than live_bytes ({}), cached_bytes ({}) and "
                   "pending_bytes ({}) together",
                   stats.reserved_bytes, stats.live_bytes, stats.cached_bytes, stats.pending_bytes);
            left -= part;
        }
        expect(stats.largest_free_block <= stats.cached_bytes,
               "largest_free_block is {}: more than cached_bytes, {}", stats.largest_free_block,
               stats.cached_bytes);
        return left;
    }

    // Without live memory there is no other part, except the manager's own overhead.
    void nothing_is_live() const {
        const emm_stats stats = manager_.stats();
        const uint64_t left = rest(), allowed = idle_ + stats.reserved_bytes / 16;
        expect(left <= allowed,
               "nothing is live, and of {} reserved bytes only {} are cached and {} pending",
               stats.reserved_bytes, stats.cached_bytes, stats.pending_bytes);
    }

    // The driver rounds sizes up. Memory in emm's queue of pending frees is in neither of the two
    // figures.
    void agrees_with_driver() const {
        const simcuda_counters now = counters();
        const uint64_t taken = bytes_of(now) - bytes_of(before_);
        const uint64_t blocks = blocks_of(now) - blocks_of(before_), rounding = 2 * mib * blocks;
        const emm_stats stats = manager_.stats();
        const uint64_t said = stats.reserved_bytes;
        expect(said <= taken && taken - said <= rounding,
               "reserved_bytes is {}, and the driver has handed out {} in {} blocks", said, taken,
               blocks);
        const uint64_t of_host = now.host_bytes - before_.host_bytes;
        expect(stats.spilled_bytes <= std::min(said, of_host),
               "spilled_bytes is {}, of {} bytes that are reserved and {} of the host",
               stats.spilled_bytes, said, of_host);
    }

private:
    // Managed memory is the host's on the simulated driver.
    static uint64_t bytes_of(const simcuda_counters &of) { return of.device_bytes + of.host_bytes; }
    static uint64_t blocks_of(const simcuda_counters &of) {
        return of.device_blocks + of.host_blocks;
    }

    const BareManager &manager_;
    const simcuda_counters before_;
    uint64_t idle_ = 0;
};

void trim_all(const BareManager &manager) {
    size_t released = 0;
    if (manager.slots().trim) {
        EMM_MUST(manager, trim, size_t(0), &released);
    }
    run_deferred(EMM_DEFERRED_RUN);
}

void reserved(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().get_stats, "it has no get_stats");
    expect_tells(bare);
    const simcuda_counters before = counters();
    const BareManager manager(bare);
    const Books books(manager, before);
    const OwnedStream owned;
    for (const emm_stream freed_on : {owned.get(), EMM_STREAM_UNORDERED}) {
        std::vector<std::pair<emm_deviceptr, size_t>> blocks;
        for (const size_t size : {2 * mib, 10 * mib, 60 * mib, 10 * mib, 60 * mib}) {
            blocks.emplace_back(manager.alloc(size, owned.get()), size);
            mark(owned.get(), blocks.back().first, size, 1);
            books.rest();
        }
        books.agrees_with_driver();
        for (const auto &[ptr, size] : blocks) {
            manager.free(ptr, size, freed_on);
            books.rest(); // the device may still be at work
        }
        EMM_REQUIRE_CUDA_ENTRY(cuCtxSynchronize);
        run_deferred(EMM_DEFERRED_RUN);
        books.nothing_is_live();
        books.agrees_with_driver();
        manager.free(manager.alloc(90 * mib),
                     90 * mib); // a call in which the manager looks for completed work
        run_deferred(EMM_DEFERRED_RUN);
        books.nothing_is_live();
    }
    trim_all(manager);
    books.agrees_with_driver();
}

uint64_t held(const emm_stats &stats) {
    return stats.reserved_bytes + stats.paused_bytes;
}

void check_reset(const BareManager &manager) {
    const emm_stats before = manager.stats();
    EMM_MUST(manager, reset_peaks);
    const emm_stats after = manager.stats();
    equal("peak_live_bytes after reset_peaks", after.peak_live_bytes, before.live_bytes);
    // A driver may take memory back meanwhile.
    expect(after.peak_reserved_bytes <= std::max(held(before), held(after)),
           "peak_reserved_bytes after reset_peaks is {}: expected {}, as is reserved",
           after.peak_reserved_bytes, held(before));
    check_sums(after, before.live_bytes, before.live_count);
    equal("allocations after reset_peaks", after.allocations, before.allocations);
    equal("frees after reset_peaks", after.frees, before.frees);
    equal("failures after reset_peaks", after.failures, before.failures);
}

// Small blocks and large ones: a plugin may count them in different places.
void peaks(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().get_stats, "it has no get_stats");
    need(bare.slots().reset_peaks, "it has no reset_peaks: its peaks go on");
    const BareManager manager(bare);
    constexpr size_t kept = 5000;
    const emm_deviceptr first = manager.alloc(kept);
    for (const size_t size : {size_t(300), 7 * mib, size_t(300), 2 * mib}) {
        std::vector<emm_deviceptr> blocks;
        for (int i = 0; i < 4; i++) {
            blocks.push_back(manager.alloc(size));
        }
        manager.free(blocks.back(), size);
        const emm_stats top = manager.stats();
        expect(top.peak_live_bytes >= kept + 4 * size, "peak_live_bytes is {}: expected {} or more",
               top.peak_live_bytes, kept + 4 * size);
        check_reset(manager);
        for (int i = 0; i < 3; i++) {
            manager.free(blocks[size_t(i)], size);
        }
        const emm_stats low = manager.stats();
        expect(low.peak_live_bytes >= kept + 3 * size && low.peak_live_bytes < top.peak_live_bytes,
               "peak_live_bytes is {} where {} were live since reset_peaks, and was {} before",
               low.peak_live_bytes, kept + 3 * size, top.peak_live_bytes);
    }
    manager.free(first, kept);
    trim_all(manager); // less is reserved than at the peak
    check_reset(manager);
}

} // namespace

std::vector<Case> statistics_cases() {
    return {
        {"accounts/statistics", "EMM-P-30", "statistics add up", statistics},
        {"accounts/peaks", "EMM-P-68", "peaks begin anew when told to, and no other figure does",
         peaks},
        {"accounts/reserved", "EMM-P-30",
         "what is reserved is the driver's, and is live, cached or pending", reserved, on_simulator,
         "progress=lazy"},
    };
}

} // namespace emm::tool::check
