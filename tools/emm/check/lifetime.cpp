// Managers: create, initialize, reset, destroy, and contexts that die under them.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <thread>

namespace emm::tool::check {
namespace {

void each_context(const CheckedPlugin &plugin) {
    const CUcontext first = enter_device();
    const Bare bare(plugin);
    const BareManager one(bare);
    const emm_deviceptr kept = one.alloc(mib);
    mark(nullptr, kept, mib, 0x11);
    const CUcontext second = make_context();
    BareManager other(bare);
    expect(one.self() != other.self(), "two contexts got the same manager");
    other.free(other.alloc(mib), mib);
    other.alloc(mib); // stays
    other.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    EMM_REQUIRE_CUDA_ENTRY(cuCtxDestroy, second);
    enter(first);
    expect(is_marked(nullptr, kept, mib, 0x11), "a block changed when another context's manager "
                                                "was destroyed");
    one.free(kept, mib);
}

// Two pools, as emm_context_named makes them. Calls to one do not affect the other's memory.
void pools(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager one(bare);
    const emm_deviceptr kept = one.alloc(mib);
    mark(nullptr, kept, mib, 0x44);
    const auto expect_kept = [&](const char *when) {
        expect(is_marked(nullptr, kept, mib, 0x44), "a block of one pool changed {}", when);
    };
    BareManager other(bare, true, "other");
    expect(one.self() != other.self(), "two pools of one CUDA context got the same manager");
    EMM_SLOT(other, memfree, kept, mib, EMM_STREAM_UNORDERED); // frees nothing
    if (bare.slots().query) {
        auto info = sized<emm_block_info>();
        const emm_status found = EMM_SLOT(other, query, kept, &info);
        expect(found == EMM_E_NOT_OWNED, "one pool returns {} to a query of the other's block",
               found);
    }
    const auto use = [&] {
        const emm_deviceptr ptr = other.alloc(mib);
        mark(nullptr, ptr, mib, 0x55);
        other.free(ptr, mib);
        other.alloc(mib); // stays
    };
    use();
    expect_kept("while the other one allocated and freed");
    if (bare.slots().get_stats) {
        auto stats = sized<emm_stats>();
        EMM_MUST(other, get_stats, &stats);
        expect(stats.live_bytes <= 2 * mib && stats.live_count <= 1,
               "a pool with 1 live block counts {} of {} bytes", stats.live_count,
               stats.live_bytes);
    }
    if (bare.slots().trim) {
        size_t released = 0;
        EMM_MUST(other, trim, size_t(0), &released);
        expect_kept("when the other one was trimmed");
    }
    if (bare.slots().reset) {
        EMM_MUST(other, reset);
        run_deferred(EMM_DEFERRED_RUN);
        use();
    }
    other.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    const emm_status own = EMM_SLOT(one, memfree, kept, mib, EMM_STREAM_UNORDERED);
    expect(own >= EMM_OK,
           "a block of one pool is not live any more after a free, a reset and the end of the "
           "other: its free returns {}",
           own);
    const emm_deviceptr next = one.alloc(mib);
    mark(nullptr, next, mib, 0x66);
    one.free(next, mib);
}

void initialize_again(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().initialize, "it has no initialize");
    const BareManager manager(bare);
    const emm_deviceptr kept = manager.alloc(mib);
    mark(nullptr, kept, mib, 0x22);
    for (int i = 0; i < 3; i++) {
        const emm_status ready = EMM_SLOT(manager, initialize);
        expect(ready >= EMM_OK, "initialize fails the next time: {} {}", ready, last_said().text);
    }
    const emm_deviceptr other = manager.alloc(mib);
    expect(other != kept, "after another initialize a live block is handed out again");
    expect(is_marked(nullptr, kept, mib, 0x22), "another initialize changed a live block");
    manager.free(other, mib);
    manager.free(kept, mib);
}

// A manager's life: registered and unregistered streams, and every kind of free. A reset, a trim
// and destroy each find something cached.
void live_once(const Bare &bare) {
    BareManager manager(bare);
    const OwnedStream owned, other;
    const auto tell = [&](uint32_t notice) {
        if (bare.slots().stream_notice) {
            EMM_SLOT(manager, stream_notice, owned.get(), notice);
        }
    };
    tell(EMM_STREAM_REGISTERED);
    for (const size_t size : {size_t(1000), mib, 40 * mib}) {
        manager.alloc(size, owned.get()); // stays
        for (const emm_stream stream : {EMM_STREAM_UNORDERED, other.get(), owned.get()}) {
            const emm_deviceptr ptr = manager.alloc(size, owned.get());
            mark(owned.get(), ptr, size, 1);
            other.wait_for(owned); // the memory may be freed there
            if (bare.slots().record_use && stream != owned.get()) {
                EMM_SLOT(manager, record_use, ptr, size, other.get());
            }
            manager.free(ptr, size, stream);
        }
        if (size == mib && bare.slots().trim) {
            size_t released = 0;
            EMM_SLOT(manager, trim, size_t(0), &released);
        } else if (size < mib && bare.slots().reset) {
            owned.synchronize();
            other.synchronize();
            EMM_SLOT(manager, reset);
        }
    }
    tell(EMM_STREAM_RETIRING);
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
}

// A leak grows with each manager; memory that a library keeps once is no leak.
void destroy_leaks(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    live_once(bare);
    const uint64_t before = counters().objects;
    constexpr int rounds = 3;
    for (int i = 0; i < rounds; i++) {
        live_once(bare);
    }
    expect(counters().objects <= before,
           "{} managers that came and went have left {} of the driver's events, streams, pools or "
           "address ranges behind",
           rounds, counters().objects - before);
}

void reset_first(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().reset, "it has no reset: emm destroys and creates");
    const BareManager manager(bare, false);
    for (int i = 0; i < 2; i++) {
        const emm_status status = EMM_SLOT(manager, reset);
        expect(status >= EMM_OK, "reset before initialize fails: {} {}", status, last_said().text);
    }
    if (bare.slots().initialize) {
        EMM_SLOT(manager, initialize);
    }
    manager.free(manager.alloc(mib), mib);
    for (int i = 0; i < 2; i++) {
        EMM_MUST(manager, reset);
    }
    manager.free(manager.alloc(mib), mib);
}

void reset_drops(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const uint64_t before = held_bytes();
    for (int round = 0; round < 3; round++) {
        free_first(hosted, 4, take(hosted, 20, 3 * mib), 3 * mib);
        void *host = nullptr;
        must(emm_memhostalloc(hosted.get(), mib, 0, &host, nullptr), "memhostalloc");
        must(emm_context_reset(hosted.get()), "reset");
        must(emm_trim(hosted.get(), 0, nullptr), "trim");
        expect(held_bytes() <= before,
               "after reset {} bytes that were live or cached are still taken",
               held_bytes() - before);
    }
    hosted.free(hosted.alloc(mib), mib);
}

// Through emm, which replays sections and captures to the manager that replaces a reset one.
void reset_goes_on(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    emm_context *context = hosted.get();
    must(emm_defer_cleanup_begin(context), "defer_cleanup");
    must(emm_context_reset(context), "reset in a section");
    const std::vector<emm_deviceptr> blocks = take(hosted, 20, 2 * mib);
    const uint64_t taken = held_bytes();
    free_all(hosted, blocks, 2 * mib);
    must(emm_trim(context, 0, nullptr), "trim");
    expect(held_bytes() >= taken,
           "{} bytes went back to the driver in a section that began before a reset",
           taken - held_bytes());
    must(emm_defer_cleanup_end(context), "ending a section that began before a reset");
    OwnedStream owned;
    hosted.enlist(owned);
    must(emm_capture_begin(context, owned.get()), "announcing a capture");
    must(emm_context_reset(context), "reset with a capture announced");
    EMM_REQUIRE_CUDA_ENTRY(cuStreamBeginCapture, owned.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
    for (const size_t size : {size_t(1000), mib, 40 * mib}) {
        hosted.free(hosted.alloc(size), size);
    }
    CUgraph graph = nullptr;
    const CUresult ended = EMM_DRIVER_ENTRY(cuStreamEndCapture)(owned.get(), &graph);
    must(emm_capture_end(context, owned.get()), "announcing a capture's end");
    expect(ended == CUDA_SUCCESS,
           "a capture that was announced before a reset was invalidated: CUDA error {}",
           static_cast<int>(ended));
    EMM_REQUIRE_CUDA_ENTRY(cuGraphDestroy, graph);
    hosted.free(hosted.alloc(mib, owned.get()), mib, owned.get());
    hosted.retire(owned);
}

void reset_without_context(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    hosted.alloc(mib);
    std::string trouble;
    std::thread([&] {
        try {
            must(emm_context_reset(hosted.get()), "reset on a thread without a context");
            hosted.free(hosted.alloc(mib), mib);
        } catch (const Violation &violation) {
            trouble = violation.what();
        }
    }).join();
    expect(trouble.empty(), "{}", trouble);
}

void dead_context(const CheckedPlugin &plugin) {
    const Hosted primary(plugin);
    const uint64_t before = held_bytes();
    const CUcontext context = make_context();
    {
        const Hosted hosted(plugin, context);
        const std::vector<emm_deviceptr> blocks = take(hosted, 30, mib);
        free_first(hosted, 6, blocks, mib);
        enter(primary.cuda());
        EMM_REQUIRE_CUDA_ENTRY(cuCtxDestroy, context);
        must(emm_context_retire(hosted.get()), "retiring a context that has died");
        must(emm_memfree(hosted.get(), blocks.back(), mib, EMM_STREAM_UNORDERED),
             "a free in a retired context");
    }
    EMM_REQUIRE_CUDA_ENTRY(
        cuCtxSynchronize); // the driver's pools give back memory beyond their threshold
    expect(held_bytes() == before, "{} bytes of a context that died are still taken",
           held_bytes() - before);
    primary.free(primary.alloc(mib), mib);
}

// The program's own blocks of the next context lie at the dead context's addresses.
void replaced_context(const CheckedPlugin &plugin) {
    constexpr int blocks = 20;
    enter_device();
    const CUcontext first = make_context();
    const Hosted dead(plugin, first);
    const std::vector<emm_deviceptr> live = take(dead, 2 * blocks, 3 * mib);
    std::vector<emm_deviceptr> own(blocks);
    free_first(dead, blocks, live, 3 * mib);
    EMM_REQUIRE_CUDA_ENTRY(cuCtxDestroy, first);
    const CUcontext second = make_context();
    for (emm_deviceptr &ptr : own) {
        EMM_REQUIRE_CUDA_ENTRY(cuMemAlloc, &ptr, 3 * mib);
        mark(nullptr, ptr, 3 * mib, 0x33);
    }
    const Hosted next(plugin, second); // emm abandons the dead context's manager
    emm_deviceptr none = 0;
    const emm_status status = emm_memalloc(dead.get(), mib, EMM_STREAM_UNORDERED, &none);
    expect(status == EMM_E_RETIRED, "an allocation in a context that died returned {}", status);
    dead.free(live.back(), 3 * mib);
    next.free(next.alloc(3 * mib), 3 * mib);
    for (const emm_deviceptr ptr : own) {
        expect(is_marked(nullptr, ptr, 3 * mib, 0x33),
               "memory changed that the next context of the device has at an address of the dead "
               "one's");
        EMM_REQUIRE_CUDA_ENTRY(cuMemFree, ptr);
    }
}

// The same without emm: a host that queues nothing cannot ask whether the context lives.
void replaced_without_queue(const CheckedPlugin &plugin) {
    constexpr int blocks = 20;
    enter_device();
    const CUcontext first = make_context();
    const Bare bare(plugin);
    BareManager dead(bare);
    take(dead, blocks, 3 * mib);
    EMM_REQUIRE_CUDA_ENTRY(cuCtxDestroy, first);
    make_context();
    std::vector<emm_deviceptr> own(blocks);
    for (emm_deviceptr &ptr : own) {
        EMM_REQUIRE_CUDA_ENTRY(cuMemAlloc, &ptr, 3 * mib);
    }
    set_defer(Defer::refuse);
    dead.destroy();
    for (const emm_deviceptr ptr : own) {
        CUdeviceptr base = 0;
        size_t size = 0;
        expect(EMM_DRIVER_ENTRY(cuMemGetAddressRange)(&base, &size, ptr) == CUDA_SUCCESS,
               "destroy freed memory of the next context, at an address of the dead one's");
    }
}

} // namespace

std::vector<Case> lifetime_cases() {
    return {
        {"create/each-context", "EMM-P-09", "each context has a manager of its own", each_context},
        {"create/pools", "EMM-P-60", "two managers of one CUDA context keep their memory apart",
         pools},
        {"initialize/again", "EMM-P-10", "later calls of initialize disturb nothing",
         initialize_again},
        {"destroy/leaks", "EMM-P-11", "destroy leaves no event and no stream behind", destroy_leaks,
         on_simulator},
        {"reset/first", "EMM-P-36", "reset may come before initialize, and again", reset_first},
        {"reset/drops", "EMM-P-36", "reset drops every allocation", reset_drops, on_simulator},
        {"reset/goes-on", "EMM-P-47", "sections and announced captures go on over a reset",
         reset_goes_on, on_simulator},
        {"reset/no-context", "EMM-P-36", "reset needs no current context", reset_without_context},
        {"context/dead", "EMM-P-39", "a context that died takes nothing with it", dead_context,
         on_simulator},
        {"context/replaced", "EMM-P-39", "a context that died harms none that came after it",
         replaced_context, on_simulator},
        {"context/no-queue", "EMM-P-39",
         "a context that died harms no later one, even when the host queues nothing",
         replaced_without_queue, on_simulator},
    };
}

} // namespace emm::tool::check
