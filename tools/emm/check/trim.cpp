// trim: how much goes back to the driver.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

#include <algorithm>
#include <limits>

namespace emm::tool::check {
namespace {

void fill_cache(const BareManager &manager) {
    for (const size_t size : {mib, 5 * mib, 70 * mib}) {
        free_all(manager, take(manager, 8, size), size);
    }
    run_deferred(EMM_DEFERRED_RUN);
}

// 0 if the driver does not count.
uint64_t cached_bytes(const BareManager &manager) {
    auto stats = sized<emm_stats>();
    if (manager.slots().get_stats) {
        EMM_SLOT(manager, get_stats, &stats);
    }
    return stats.cached_bytes;
}

// `before`: the memory that the driver had handed out before anything was cached.
void expect_cached(const BareManager &manager, uint64_t before) {
    if (cached_bytes(manager) == 0 && held_bytes() == before) {
        throw Skipped("nothing was cached");
    }
}

// Trims, and returns the bytes that trim reports: at most those that the driver got, whose sizes
// are rounded up.
uint64_t trim_to(const BareManager &manager, size_t keep) {
    const simcuda_counters before = counters();
    const uint64_t held = held_bytes();
    size_t released = 0;
    EMM_MUST(manager, trim, keep, &released);
    run_deferred(EMM_DEFERRED_RUN);
    const simcuda_counters after = counters();
    const uint64_t went = held - held_bytes();
    const uint64_t pieces =
        before.device_blocks + before.host_blocks - after.device_blocks - after.host_blocks;
    expect(released <= went && went - released <= pieces * 2 * mib,
           "trim says that it released {} bytes, and the driver got {}", released, went);
    return released;
}

void trim(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().trim, "it has no trim: it caches nothing");
    const BareManager manager(bare);
    const uint64_t idle = held_bytes();
    const emm_deviceptr kept = manager.alloc(mib);
    const uint64_t piece = held_bytes() - idle; // the driver's memory for the live block
    mark(nullptr, kept, mib, 0x77);
    fill_cache(manager);
    expect_cached(manager, idle + piece);
    trim_to(manager, 0);
    expect(is_marked(nullptr, kept, mib, 0x77), "a trim changed a live block");
    expect(
        held_bytes() < idle + piece + 64 * mib,
        "after a trim to 0 with 1 MiB live, {} bytes more than before are taken, of which the live "
        "block's piece is {}",
        held_bytes() - idle, piece);
    manager.free(kept, mib);
    fill_cache(manager);
    for (const size_t keep : {64 * mib, size_t(0)}) {
        trim_to(manager, keep);
        const uint64_t cached = cached_bytes(manager);
        expect(cached <= keep, "after a trim to {} bytes {} are still cached, and nothing is live",
               keep, cached);
    }
}

// Takes blocks one by one. Gives the most driver memory that one block has cost: no piece that goes
// back can be larger.
uint64_t fill_with_pieces(const BareManager &manager) {
    std::vector<emm_deviceptr> blocks(16);
    uint64_t largest = 0;
    for (emm_deviceptr &ptr : blocks) {
        const uint64_t before = held_bytes();
        ptr = manager.alloc(40 * mib);
        largest = std::max(largest, held_bytes() - before);
    }
    free_all(manager, blocks, 40 * mib);
    run_deferred(EMM_DEFERRED_RUN);
    return largest;
}

// trim returns piece by piece, and stops once the cached bytes are no more than asked for.
void trim_in_part(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    if (!bare.slots().trim || !bare.slots().get_stats) {
        throw Skipped("it has no trim, or get_stats, which tells what is cached");
    }
    expect_tells(bare);
    const uint64_t idle = held_bytes();
    const BareManager manager(bare);
    const uint64_t own = held_bytes() - idle;
    const uint64_t piece = std::max(own, fill_with_pieces(manager));
    expect_cached(manager, idle + own);
    const uint64_t nothing = trim_to(manager, std::numeric_limits<size_t>::max());
    expect(nothing == 0, "a trim that may keep everything gave {} bytes back", nothing);
    const uint64_t full = cached_bytes(manager);
    for (const uint64_t keep : {full, full / 4 * 3, full / 2, full / 4}) {
        const uint64_t before = cached_bytes(manager), released = trim_to(manager, keep);
        const uint64_t after = cached_bytes(manager);
        expect(before > keep || released == 0,
               "a trim to {} bytes with {} cached gave {} back: there was nothing to do", keep,
               before, released);
        expect(before <= keep || after + piece > keep,
               "a trim to {} bytes with {} cached left {}, though it can give back {} at a time",
               keep, before, after, piece);
    }
}

} // namespace

std::vector<Case> trim_cases() {
    return {
        {"cleanup/trim", "EMM-P-28", "trim returns what is cached, and says how much that was",
         trim, on_simulator},
        {"cleanup/trim-in-part", "EMM-P-28", "trim stops when no more than asked for is cached",
         trim_in_part, on_simulator},
    };
}

} // namespace emm::tool::check
