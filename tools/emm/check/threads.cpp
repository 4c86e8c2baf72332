// Threads, contexts and devices: any thread calls, with any context current.
#include "threads.h"
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>

namespace emm::tool::check {
namespace {

// Runs `body` on several threads at once, and throws the first violation.
template <class Body> void on_checked_threads(unsigned count, const Body &body) {
    std::mutex mutex;
    std::string trouble;
    on_threads(count, [&](unsigned i) {
        try {
            body(i);
        } catch (const std::exception &error) {
            const std::lock_guard lock(mutex);
            trouble = trouble.empty() ? error.what() : trouble;
        }
    });
    expect(trouble.empty(), "{}", trouble);
}

void parallel(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    on_checked_threads(4, [&](unsigned thread) {
        enter(hosted.cuda());
        OwnedStream owned;
        hosted.enlist(owned);
        std::mt19937_64 random(plugin.seed + thread);
        std::vector<std::pair<emm_deviceptr, size_t>> live;
        for (int i = 0; i < 400; i++) {
            if (live.size() < 20 && random() % 2 == 0) {
                const size_t size = 1 + random() % (size_t(1) << (random() % 20));
                live.emplace_back(hosted.alloc(size, owned.get()), size);
                mark(owned.get(), live.back().first, size, static_cast<uint8_t>(thread + 1));
            } else if (!live.empty()) {
                const auto [ptr, size] = live.back();
                live.pop_back();
                expect(is_marked(owned.get(), ptr, size, static_cast<uint8_t>(thread + 1)),
                       "a live block of {} bytes was changed by another thread", size);
                hosted.free(ptr, size, owned.get());
            }
        }
        for (const auto &[ptr, size] : live) {
            hosted.free(ptr, size, owned.get());
        }
        hosted.retire(owned);
    });
}

using Blocks = std::vector<std::pair<emm_deviceptr, size_t>>;

// Begins when all threads have started.
void meet(std::atomic<unsigned> &missing) {
    for (missing--; missing > 0;) {
        std::this_thread::yield();
    }
}

// Allocates and frees at random; leaves some blocks live.
Blocks hurry(const BareManager &manager, uint64_t seed) {
    const OwnedStream owned;
    std::mt19937_64 random(seed);
    Blocks live;
    for (int i = 0; i < 1500; i++) {
        if (live.size() < 16 && random() % 2 == 0) {
            const size_t size = 1 + random() % (size_t(256) << (random() % 8));
            const emm_stream stream = random() % 4 ? owned.get() : EMM_STREAM_UNORDERED;
            live.emplace_back(manager.alloc(size, stream), size);
        } else if (!live.empty()) {
            std::swap(live[random() % live.size()], live.back());
            const auto [ptr, size] = live.back();
            live.pop_back();
            manager.free(ptr, size, random() % 8 ? owned.get() : EMM_STREAM_UNORDERED);
        }
    }
    return live;
}

// Meanwhile, calls the slots that only report.
void look(const BareManager &manager) {
    for (int i = 0; i < 50; i++) {
        const emm_deviceptr ptr = manager.alloc(1000);
        auto info = sized<emm_block_info>();
        if (manager.slots().query) {
            const emm_status status = EMM_SLOT(manager, query, ptr, &info);
            expect(status >= EMM_OK && info.base == ptr,
                   "query of a live block returns {} while other threads allocate", status);
        }
        manager.free(ptr, 1000);
        auto stats = sized<emm_stats>();
        size_t released = 0;
        if (manager.slots().get_stats) {
            EMM_SLOT(manager, get_stats, &stats);
        }
        if (manager.slots().trim) {
            EMM_SLOT(manager, trim, mib, &released);
        }
        run_deferred(EMM_DEFERRED_RUN);
    }
}

void expect_apart(Blocks blocks) {
    std::sort(blocks.begin(), blocks.end());
    for (size_t i = 1; i < blocks.size(); i++) {
        expect(blocks[i - 1].first + blocks[i - 1].second <= blocks[i].first,
               "two threads have blocks that overlap: {} bytes at 0x{:x}, and 0x{:x}",
               blocks[i - 1].second, blocks[i - 1].first, blocks[i].first);
    }
}

// Slot calls only, back to back: other work would make collisions of threads rare.
void crowded(const CheckedPlugin &plugin) {
    const CUcontext context = enter_device();
    const Bare bare(plugin);
    const BareManager manager(bare);
    for (unsigned round = 0; round < 12; round++) {
        std::mutex mutex;
        Blocks live;
        std::atomic<unsigned> missing{4};
        on_checked_threads(4, [&](unsigned thread) {
            enter(context);
            meet(missing);
            if (thread == 3) {
                look(manager);
                return;
            }
            const Blocks mine = hurry(manager, plugin.seed + 10 * round + thread);
            const std::lock_guard lock(mutex);
            live.insert(live.end(), mine.begin(), mine.end());
        });
        expect_apart(live);
        for (const auto &[ptr, size] : live) {
            manager.free(ptr, size);
        }
    }
}

// One thread allocates and another frees, with any context current.
void foreign_free(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const CUcontext other = make_context();
    enter(hosted.cuda());
    for (const CUcontext current : {CUcontext(nullptr), other, hosted.cuda()}) {
        const std::vector<emm_deviceptr> blocks = take(hosted, 20, mib);
        on_checked_threads(1, [&](unsigned) {
            enter(current);
            for (const emm_deviceptr ptr : blocks) {
                hosted.free(ptr, mib);
            }
            hosted.free(hosted.alloc(mib), mib);
        });
    }
}

void devices(const CheckedPlugin &plugin) {
    const Hosted second(plugin, 1), first(plugin, 0); // device 0 stays current
    const auto attribute = EMM_DRIVER_ENTRY(cuPointerGetAttribute);
    int ordinal = 0;
    for (const Hosted *hosted : {&second, &first}) {
        const int expected = hosted == &second ? 1 : 0;
        const emm_deviceptr ptr = hosted->alloc(mib);
        require_cuda(attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr),
                     "cuPointerGetAttribute");
        expect(ordinal == expected, "memory for device {} lies on device {}", expected, ordinal);
        hosted->free(ptr, mib);
    }
}

void query_device(const CheckedPlugin &plugin) {
    const Hosted second(plugin, 1), first(plugin, 0);
    for (const Hosted *hosted : {&second, &first}) {
        const int expected = hosted == &second ? 1 : 0;
        const emm_deviceptr ptr = hosted->alloc(mib);
        auto info = sized<emm_block_info>();
        const emm_status status = emm_query(hosted->get(), ptr, &info);
        hosted->free(ptr, mib);
        if (status == EMM_E_NOT_SUPPORTED) {
            throw Skipped("it has no query");
        }
        must(status, "query");
        expect(info.device == expected, "query tells device {} of memory on device {}", info.device,
               expected);
    }
}

void peers(const CheckedPlugin &plugin) {
    const Hosted second(plugin, 1), first(plugin, 0);
    const emm_deviceptr before = first.alloc(mib);
    const emm_status given = emm_set_peer_access(first.get(), 1, EMM_ACCESS_READ_WRITE);
    if (given == EMM_E_NOT_SUPPORTED) {
        first.free(before, mib);
        throw Skipped(std::string("it gives no access: ") + emm_last_error()->text);
    }
    must(given, "set_access");
    const emm_deviceptr after = first.alloc(64 * mib);
    const auto use = [&](const std::vector<emm_deviceptr> &blocks) {
        enter(second.cuda());
        const OwnedStream owned;
        for (const emm_deviceptr ptr : blocks) {
            if (plugin.simulated) {
                launch(owned.get(), ptr, mib);
            }
            mark(owned.get(), ptr, mib, 0x33);
            expect(is_marked(owned.get(), ptr, mib, 0x33), "what a peer wrote is not there");
        }
        enter(first.cuda());
    };
    use({before, after});
    if (emm_context_pause(first.get(), EMM_PAUSE_DISCARD, nullptr) >= EMM_OK) {
        must(emm_context_resume(first.get(), 0), "resume");
        use({before, after});
    }
    first.free(before, mib);
    first.free(after, 64 * mib);
    must(emm_context_reset(first.get()), "reset");
    const emm_deviceptr next = first.alloc(mib);
    use({next});
    first.free(next, mib);
}

} // namespace

std::vector<Case> thread_cases() {
    return {
        {"threads/parallel", "EMM-P-19", "threads do not disturb each other", parallel},
        {"threads/crowded", "EMM-P-19", "blocks are one thread's alone, however many ask at once",
         crowded},
        {"threads/foreign-free", "EMM-P-19", "any thread may free, with any or no current context",
         foreign_free},
        {"devices/two", "EMM-P-20", "memory comes from the manager's own device", devices,
         two_devices, "devices=2"},
        {"devices/query", "EMM-P-31", "query tells the device that the memory is on", query_device,
         two_devices, "devices=2"},
        {"devices/peers", "EMM-P-42 EMM-P-47", "a peer that was given access keeps it", peers,
         two_devices, "devices=2"},
    };
}

} // namespace emm::tool::check
