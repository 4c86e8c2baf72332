// pause and resume: the memory that goes back, stays, and comes back.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

#include <algorithm>
#include <vector>

namespace emm::tool::check {
namespace {

constexpr uint8_t first_mark = 0x51;
const std::vector<size_t> paused_sizes = {1000, mib, 37 * mib, 3 * mib, 100 * mib};

size_t must_pause(const BareManager &manager, uint32_t flags = EMM_PAUSE_KEEP) {
    size_t released = 0;
    EMM_MUST(manager, pause, flags, &released);
    return released;
}

// A plugin may refuse by its options, or have a device that it cannot pause on.
Bare pausing(const CheckedPlugin &plugin) {
    Bare bare = on_device(plugin);
    need(bare.slots().pause, "it has no pause");
    const BareManager manager(bare);
    manager.alloc(mib);
    size_t released = 0;
    const emm_status status = EMM_SLOT(manager, pause, EMM_PAUSE_DISCARD, &released);
    if (status == EMM_E_NOT_SUPPORTED) {
        throw Skipped("it does not pause with these options, or on this device");
    }
    expect(status == EMM_OK, "pause fails: {} {}", status, last_said().text);
    return bare;
}

bool keeps_content(const Bare &bare) {
    return (bare.slots().capabilities & EMM_PLUGIN_PAUSE_KEEPS) != 0;
}

// Blocks of several paused_sizes, each with a mark of its own, and gaps between them.
std::vector<emm_deviceptr> fill_marked(const BareManager &manager) {
    std::vector<emm_deviceptr> blocks;
    for (const size_t size : paused_sizes) {
        blocks.push_back(manager.alloc(size));
        mark(nullptr, blocks.back(), size, uint8_t(first_mark + blocks.size()));
        const emm_deviceptr gap = manager.alloc(size);
        manager.free(gap, size);
    }
    run_deferred(EMM_DEFERRED_RUN);
    return blocks;
}

void expect_marked(const std::vector<emm_deviceptr> &blocks, const char *when) {
    for (size_t i = 0; i < blocks.size(); i++) {
        expect(is_marked(nullptr, blocks[i], paused_sizes[i], uint8_t(first_mark + i + 1)),
               "{} a block of {} bytes has other content", when, paused_sizes[i]);
    }
}

// Made before the count begins: the driver's first copy may take memory of its own.
void pause_returns(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const uint64_t idle = held_bytes();
    const BareManager manager(bare);
    fill_marked(manager);
    const uint64_t taken = held_bytes() - idle;
    const uint64_t spilled = manager.stats().spilled_bytes; // spilled memory stays where it is
    const size_t released = must_pause(manager, EMM_PAUSE_DISCARD);
    const uint64_t went = taken + idle - held_bytes();
    expect(released == went, "pause says that {} bytes went back, and the driver got {}", released,
           went);
    expect(went >= (taken - spilled) / 100 * 97, "of {} bytes pause gave {} back, less than 97 %",
           taken - spilled, went);
    size_t again = 77;
    const emm_status status = EMM_SLOT(manager, pause, EMM_PAUSE_DISCARD, &again);
    expect(status == EMM_S_IGNORED && again == 0,
           "a second pause returns {} and {} bytes, expected EMM_S_IGNORED and 0", status, again);
    EMM_MUST(manager, resume, 0u);
    const emm_status more = EMM_SLOT(manager, resume, 0u);
    expect(more == EMM_S_IGNORED, "a second resume returns {}, expected EMM_S_IGNORED", more);
}

// The kept content, while the pause lasts. Blocks of host memory may stay in their place.
void expect_told(const BareManager &manager, const std::vector<emm_deviceptr> &blocks) {
    for (size_t i = 0; manager.slots().read_paused && i < blocks.size(); i++) {
        std::vector<uint8_t> told(paused_sizes[i]);
        const emm_status status =
            EMM_SLOT(manager, read_paused, blocks[i], told.size(), told.data());
        if (status == EMM_S_IGNORED && manager.stats().spilled_bytes > 0) {
            continue;
        }
        expect(status == EMM_OK, "read_paused returns {}: {}", status, last_said().text);
        const auto marked = uint8_t(first_mark + i + 1); // at both ends
        expect(told.front() == marked && told.back() == marked,
               "read_paused tells another content of a block of {} bytes", paused_sizes[i]);
    }
}

void pause_content(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const BareManager manager(bare);
    const std::vector<emm_deviceptr> blocks = fill_marked(manager);
    size_t released = 77;
    if (!keeps_content(bare)) {
        const emm_status status = EMM_SLOT(manager, pause, EMM_PAUSE_KEEP, &released);
        expect(status == EMM_E_NOT_SUPPORTED,
               "it lacks EMM_PLUGIN_PAUSE_KEEPS, and EMM_PAUSE_KEEP returns {}", status);
        expect_marked(blocks, "after a pause that was refused");
        return;
    }
    for (const uint32_t flags : {EMM_RESUME_KEEP_COPY, 0u, 0u}) {
        must_pause(manager);
        expect_told(manager, blocks);
        EMM_MUST(manager, resume, flags);
        expect_marked(blocks, "after a pause and a resume");
    }
    manager.free(manager.alloc(mib), mib);
}

// The mark is still to be made when pause is called.
void pause_waits(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    need(keeps_content(bare) ? bare.slots().pause : nullptr, "it keeps no content");
    const BareManager manager(bare);
    const OwnedStream stream;
    const emm_deviceptr ptr = manager.alloc(mib);
    stall(stream.get(), plugin.simulated);
    mark(stream.get(), ptr, mib, first_mark);
    must_pause(manager);
    EMM_MUST(manager, resume, 0u);
    expect(is_marked(nullptr, ptr, mib, first_mark),
           "work that was on the device before the pause is not in what came back");
}

void expect_refused(const BareManager &manager, emm_status expected, const char *when) {
    size_t released = 77;
    const emm_status status = EMM_SLOT(manager, pause, EMM_PAUSE_DISCARD, &released);
    expect(status == expected && released == 77, "pause {} returns {}, expected {}", when, status,
           expected);
}

void pause_refusals(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const BareManager manager(bare);
    const emm_deviceptr ptr = manager.alloc(mib);
    if (manager.slots().stream_notice) {
        const OwnedStream stream;
        for (const uint32_t notice : {EMM_STREAM_REGISTERED, EMM_STREAM_CAPTURE_BEGINS}) {
            EMM_MUST(manager, stream_notice, stream.get(), notice);
        }
        expect_refused(manager, EMM_E_CAPTURING, "while a capture is announced");
        for (const uint32_t notice : {EMM_STREAM_CAPTURE_ENDS, EMM_STREAM_RETIRING}) {
            EMM_MUST(manager, stream_notice, stream.get(), notice);
        }
    }
    if (manager.slots().defer_cleanup) {
        EMM_MUST(manager, defer_cleanup, 1u);
        expect_refused(manager, EMM_E_BUSY, "in a deferred section");
        EMM_MUST(manager, defer_cleanup, 0u);
    }
    mark(nullptr, ptr, mib, 1);
    manager.free(ptr, mib);
}

void pause_requests(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const BareManager manager(bare);
    const std::vector<emm_deviceptr> blocks = fill_marked(manager);
    must_pause(manager, EMM_PAUSE_DISCARD);
    const uint64_t held = held_bytes();
    for (const size_t size : {size_t(1000), 20 * mib}) {
        emm_deviceptr none = 77;
        const emm_status status = EMM_SLOT(manager, memalloc, size, EMM_STREAM_UNORDERED, &none);
        expect(status == EMM_E_PAUSED && none == 77,
               "while paused an allocation of {} bytes returns {}, expected EMM_E_PAUSED", size,
               status);
    }
    for (const size_t i : {1, 2}) {
        manager.free(blocks[i], paused_sizes[i], either_way(i));
        const emm_status status =
            EMM_SLOT(manager, memfree, blocks[i], size_t(0), EMM_STREAM_UNORDERED);
        expect(status == EMM_E_NOT_OWNED, "while paused a second free returns {}", status);
    }
    run_deferred(EMM_DEFERRED_RUN);
    if (manager.slots().trim) {
        size_t released = 77;
        EMM_MUST(manager, trim, size_t(0), &released);
        expect(released == 0, "while paused a trim releases {} bytes", released);
    }
    expect(held_bytes() <= held, "while paused the plugin has taken memory");
    EMM_MUST(manager, resume, 0u);
    for (const size_t i : {0, 3, 4}) {
        mark(nullptr, blocks[i], paused_sizes[i], 1);
        manager.free(blocks[i], paused_sizes[i]);
    }
    manager.free(manager.alloc(20 * mib), 20 * mib);
}

void pause_no_memory(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const BareManager manager(bare);
    const std::vector<emm_deviceptr> blocks = fill_marked(manager);
    const bool with_content = keeps_content(bare);
    must_pause(manager, with_content ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD);
    const uint64_t paused = manager.stats().paused_bytes;
    const uint64_t left = paused == 0 ? 120 * mib : std::min(120 * mib, paused / 2);
    size_t free = 0, total = 0;
    EMM_REQUIRE_CUDA(cuMemGetInfo, &free, &total);
    CUdeviceptr rest = 0;
    EMM_REQUIRE_CUDA(cuMemAlloc, &rest, free - left);
    const uint64_t held = held_bytes();
    for (int i = 0; i < 2; i++) {
        const emm_status status = EMM_SLOT(manager, resume, 0u);
        expect(status == EMM_E_OUT_OF_MEMORY,
               "a resume without memory returns {}, expected EMM_E_OUT_OF_MEMORY", status);
        expect(held_bytes() == held, "a resume without memory keeps {} bytes", held_bytes() - held);
        emm_deviceptr none = 0;
        const emm_status request =
            EMM_SLOT(manager, memalloc, size_t(1000), EMM_STREAM_UNORDERED, &none);
        expect(request == EMM_E_PAUSED, "after a resume that failed an allocation returns {}",
               request);
    }
    EMM_REQUIRE_CUDA(cuMemFree, rest);
    EMM_MUST(manager, resume, 0u);
    if (with_content) {
        expect_marked(blocks, "after a resume that failed at first");
    }
}

void pause_ends(const CheckedPlugin &plugin) {
    const Bare bare = pausing(plugin);
    const uint64_t idle = held_bytes(), idle_host = counters().host_bytes;
    const uint32_t flags = keeps_content(bare) ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD;
    BareManager manager(bare);
    const uint64_t own = held_bytes() - idle;
    if (manager.slots().reset) {
        fill_marked(manager);
        must_pause(manager, flags);
        EMM_MUST(manager, reset);
        run_deferred(EMM_DEFERRED_RUN);
        expect(held_bytes() <= idle + own && counters().host_bytes <= idle_host,
               "a reset while paused leaves {} bytes taken, and {} of the host",
               held_bytes() - idle - own, counters().host_bytes - idle_host);
        const emm_deviceptr ptr = manager.alloc(mib);
        mark(nullptr, ptr, mib, 1);
    }
    fill_marked(manager);
    must_pause(manager, flags);
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() <= idle && counters().host_bytes <= idle_host,
           "destroy while paused leaves {} bytes taken, and {} of the host", held_bytes() - idle,
           counters().host_bytes - idle_host);
}

} // namespace

std::vector<Case> pause_cases() {
    return {
        {"pause/returns", "EMM-P-61", "a pause gives back what was taken, and says how much",
         pause_returns, on_simulator},
        {"pause/content", "EMM-P-62", "kept content comes back at the same addresses",
         pause_content},
        {"pause/waits", "EMM-P-63", "a pause waits for the work that was on the device",
         pause_waits, every_mode},
        {"pause/refusals", "EMM-P-63", "no pause beside a capture or in a deferred section",
         pause_refusals},
        {"pause/requests", "EMM-P-64", "while paused, frees are taken and nothing is handed out",
         pause_requests, on_simulator},
        {"pause/no-memory", "EMM-P-65",
         "a resume without memory changes nothing, and is tried again", pause_no_memory,
         on_simulator},
        {"pause/ends", "EMM-P-66", "reset and destroy while paused leave nothing", pause_ends,
         on_simulator},
    };
}

} // namespace emm::tool::check
