// Deferred frees, deferred sections, memory pressure, and the return of all memory in the end.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <array>
#include <future>

namespace emm::tool::check {
namespace {

void section(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    emm_context *context = hosted.get();
    const auto blocks = take(hosted, 40, 2 * mib);
    void *host = nullptr;
    must(emm_memhostalloc(context, 2 * mib, 0, &host, nullptr), "memhostalloc");
    const uint64_t taken = held_bytes();
    const auto nothing_went = [&](const char *when) {
        expect(held_bytes() >= taken, "{} bytes went back to the driver {}", taken - held_bytes(),
               when);
    };
    must(emm_defer_cleanup_begin(context), "defer_cleanup");
    must(emm_defer_cleanup_begin(context), "defer_cleanup");
    free_all(hosted, blocks, 2 * mib);
    must(emm_memhostfree(context, host, 2 * mib, 0, EMM_STREAM_UNORDERED), "memhostfree");
    nothing_went("as it was freed in a section");
    must(emm_trim(context, 0, nullptr), "trim");
    nothing_went("by a trim in a section");
    must(emm_defer_cleanup_end(context), "defer_cleanup");
    must(emm_trim(context, 0, nullptr), "trim");
    nothing_went("when an inner section ended");
    must(emm_defer_cleanup_end(context), "defer_cleanup");
    hosted.free(hosted.alloc(mib), mib);
}

// Out of memory in a section is a valid answer, and no reason to return memory.
void section_without_memory(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const auto blocks = take(hosted, 6, 32 * mib);
    const uint64_t taken = held_bytes();
    must(emm_defer_cleanup_begin(hosted.get()), "defer_cleanup");
    free_all(hosted, blocks, 32 * mib);
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(hosted.get(), 224 * mib, EMM_STREAM_LEGACY, &ptr);
    expect(held_bytes() >= taken, "{} bytes went back to the driver in a section",
           taken - held_bytes());
    must(emm_defer_cleanup_end(hosted.get()), "defer_cleanup");
    if (status < EMM_OK) {
        ptr = hosted.alloc(224 * mib, EMM_STREAM_LEGACY);
    }
    hosted.free(ptr, 224 * mib, EMM_STREAM_LEGACY);
}

void deferred_at_once(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    set_defer(Defer::at_once);
    BareManager manager(bare);
    for (int i = 0; i < 20; i++) {
        manager.free(manager.alloc(mib), mib);
        manager.free(manager.alloc(mib, EMM_STREAM_LEGACY), mib, EMM_STREAM_LEGACY);
    }
    manager.alloc(mib); // stays live until destroy
    manager.destroy();
    set_defer(Defer::queue);
}

// The plugin frees at once itself, or returns an error and leaves the block live.
void deferred_refused(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const uint64_t before = held_bytes();
    BareManager manager(bare);
    manager.alloc(mib); // for destroy
    for (size_t i = 0; i < 20; i++) {
        const emm_deviceptr ptr = manager.alloc(mib);
        set_defer(Defer::refuse);
        const emm_status status = EMM_SLOT(manager, memfree, ptr, mib, either_way(i));
        set_defer(Defer::queue);
        if (status < EMM_OK) {
            manager.free(ptr, mib);
        }
    }
    set_defer(Defer::refuse);
    manager.destroy();
    set_defer(Defer::queue);
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() == before,
           "{} bytes were lost with frees that the host did not take into its queue",
           held_bytes() - before);
}

// The queue of a context that has died. Its addresses may belong to another context by now.
void deferred_dropped(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    BareManager manager(bare);
    if (bare.slots().stream_notice) { // plugins that keep memory put frees off during a capture
        EMM_SLOT(manager, stream_notice, EMM_STREAM_PER_THREAD, EMM_STREAM_CAPTURE_BEGINS);
    }
    for (int i = 0; i < 3; i++) {
        manager.free(manager.alloc(mib), mib);
    }
    const uint64_t frees = calls_of("cuMemFree") + calls_of("cuMemFreeAsync");
    const size_t dropped = run_deferred(EMM_DEFERRED_DROP);
    expect(calls_of("cuMemFree") + calls_of("cuMemFreeAsync") == frees,
           "a pending free that was to be dropped called the driver");
    if (bare.slots().stream_notice) {
        EMM_SLOT(manager, stream_notice, EMM_STREAM_PER_THREAD, EMM_STREAM_CAPTURE_ENDS);
    }
    if (dropped == 0) {
        throw Skipped("it puts nothing on the host's queue");
    }
}

// Another thread may be flushing the queue while the manager goes.
void deferred_outlives(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const uint64_t before = held_bytes();
    BareManager manager(bare);
    manager.alloc(mib); // stays
    for (size_t i = 0; i < 6; i++) {
        manager.free(manager.alloc(mib), mib, either_way(i));
    }
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
    expect(held_bytes() == before, "destroy left {} bytes that the driver has not got back",
           held_bytes() - before);
}

struct Hoard {
    const Hosted *hosted;
    std::vector<emm_deviceptr> blocks;
};

// Takes all of the device's memory, or all that a limit of the plugin's own allows.
std::vector<emm_deviceptr> take_all(const Hosted &hosted, size_t size) {
    constexpr size_t enough = 100;
    std::vector<emm_deviceptr> blocks;
    emm_deviceptr ptr = 0;
    while (blocks.size() < enough &&
           emm_memalloc(hosted.get(), size, EMM_STREAM_UNORDERED, &ptr) >= EMM_OK) {
        blocks.push_back(ptr);
    }
    return blocks;
}

// The application frees inside the pressure callback. If the plugin called
// host->pressure with its lock held, the free would take the lock a second time.
void pressure(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    Hoard hoard = {&hosted, take_all(hosted, 32 * mib)};
    const auto give = [](emm_context *, size_t, void *argument) -> size_t {
        auto &mine = *static_cast<Hoard *>(argument);
        const size_t count = mine.blocks.size();
        for (const emm_deviceptr ptr : std::exchange(mine.blocks, {})) {
            mine.hosted->free(ptr, 32 * mib);
        }
        return count * 32 * mib;
    };
    must(emm_set_pressure_callback(give, &hoard), "setting a callback");
    const emm_deviceptr ptr = hosted.alloc(192 * mib);
    expect(hoard.blocks.empty(), "more than the device has was given out");
    hosted.free(ptr, 192 * mib);
    must(emm_set_pressure_callback(nullptr, nullptr), "removing a callback");
}

// --- memory comes back when its work is done, even if its stream or thread has ended meanwhile ---

constexpr size_t freed_size = 20 * mib;

void use_once(const Hosted &hosted, emm_stream stream) {
    const emm_deviceptr ptr = hosted.alloc(freed_size, stream);
    mark(stream, ptr, freed_size, 1);
    hosted.free(ptr, freed_size, stream);
}

void use_by_thread(const Hosted &hosted) {
    std::async(std::launch::async, [&] {
        enter(hosted.cuda());
        use_once(hosted, EMM_STREAM_PER_THREAD);
    }).get();
}

void ended_streams(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const uint64_t idle = held_bytes();
    {
        std::array<OwnedStream, 10> streams;
        for (OwnedStream &owned : streams) {
            use_once(hosted, owned.get());
        }
        expect_all_back(hosted, idle, "10 streams are left alone that have freed 20 MiB each");
    }
    for (const bool announced : {false, true}) {
        for (int i = 0; i < 10; i++) {
            OwnedStream owned;
            if (announced) {
                hosted.enlist(owned);
            }
            use_once(hosted, owned.get());
            if (announced) {
                hosted.retire(owned);
            }
        }
        expect_all_back(hosted, idle,
                        announced ? "10 streams that have freed 20 MiB each have been retired"
                                  : "10 streams that have freed 20 MiB each have been destroyed");
    }
    for (int i = 0; i < 10; i++) {
        use_by_thread(hosted);
    }
    expect_all_back(hosted, idle, "10 threads that have freed 20 MiB each have ended");
}

// Memory used on another stream than the stream of its free.
void use_elsewhere_too(const Hosted &hosted, emm_stream stream) {
    const emm_deviceptr ptr = hosted.alloc(freed_size);
    mark(stream, ptr, freed_size, 1);
    const emm_status noted = emm_record_use(hosted.get(), ptr, freed_size, stream);
    if (noted != EMM_E_NOT_SUPPORTED) {
        must(noted, "record_use");
    }
    hosted.free(ptr, freed_size,
                noted == EMM_E_NOT_SUPPORTED ? EMM_STREAM_UNORDERED : EMM_STREAM_LEGACY);
}

void ended_uses(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const uint64_t idle = held_bytes();
    const OwnedStream owned;
    for (const emm_stream stream : {owned.get(), EMM_STREAM_PER_THREAD}) {
        for (int i = 0; i < 10; i++) {
            use_elsewhere_too(hosted, stream);
        }
        expect_all_back(hosted, idle, "10 blocks of 20 MiB that were used elsewhere are freed");
        for (int i = 0; i < 10; i++) {
            const emm_deviceptr ptr = hosted.alloc(freed_size);
            mark(stream, ptr, freed_size, 1);
            hosted.free(ptr, freed_size);
        }
        expect_all_back(hosted, idle, "10 blocks of 20 MiB are freed without a stream");
    }
    for (int i = 0; i < 10; i++) {
        const OwnedStream ends;
        use_elsewhere_too(hosted, ends.get());
    }
    expect_all_back(hosted, idle,
                    "10 blocks of 20 MiB are freed, and the streams are gone that "
                    "used them too");
}

} // namespace

std::vector<Case> cleanup_cases() {
    return {
        {"cleanup/section", "EMM-P-26", "in a deferred section the driver gets nothing back",
         section, on_simulator},
        {"cleanup/no-memory", "EMM-P-26",
         "in a deferred section the driver gets nothing back when memory runs out either",
         section_without_memory, on_simulator, "memory=256MiB"},
        {"cleanup/at-once", "EMM-P-27", "a pending free may run before defer returns",
         deferred_at_once},
        {"cleanup/refused", "EMM-P-27", "a free that the queue refuses is not lost",
         deferred_refused, on_simulator},
        {"cleanup/dropped", "EMM-P-27", "a pending free that is dropped leaves the driver alone",
         deferred_dropped, on_simulator},
        {"cleanup/outlives", "EMM-P-27", "a pending free may outlive its manager",
         deferred_outlives, on_simulator},
        {"cleanup/pressure", "EMM-P-43 EMM-H-07",
         "the application can give back when memory runs out", pressure, on_simulator,
         "memory=256MiB"},
        {"cleanup/ended-uses", "EMM-P-54", "memory that several streams have used comes back",
         ended_uses, on_simulator | every_mode},
        {"cleanup/ended-streams", "EMM-P-57", "memory freed on streams that have ended comes back",
         ended_streams, on_simulator | every_mode},
    };
}

} // namespace emm::tool::check
