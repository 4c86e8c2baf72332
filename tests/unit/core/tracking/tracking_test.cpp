#include "core/tracking/tracking.h"

#include "../address_plugin.h"
#include "../driver_calls.h"
#include "../recorder.h"
#include "catch.h"

#include "observe/process.h"
#include "parts/threads.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <thread>
#include <unistd.h>

extern "C" emm_status stand_in_malloc(decltype(&emm_memalloc) allocate, emm_context *context,
                                      size_t size, emm_deviceptr *ret_ptr);

namespace {

emm_context *tracked_context(const char *spec = "module") {
    setenv("EMM_TRACK", spec, 1);
    emm_context *context = nullptr;
    REQUIRE(emm_set_plugin_entry(&AddressPlugin::entry, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    return context;
}

// The live allocations that a walk tells, by address.
std::map<emm_deviceptr, emm_allocation> live(emm_context *context) {
    std::map<emm_deviceptr, emm_allocation> found;
    const auto take = [](const emm_allocation *allocation, void *user_data) {
        auto &all = *static_cast<std::map<emm_deviceptr, emm_allocation> *>(user_data);
        all.emplace(allocation->ptr, *allocation);
        return 0;
    };
    REQUIRE(emm_foreach_allocation(context, take, &found) == EMM_OK);
    return found;
}

// Called by several threads, so without Catch2's macros; address 0, a failure, is in no record.
// Not inlined: a test looks for its frame.
[[gnu::noinline]] emm_deviceptr made_of(emm_context *context, size_t size) {
    emm_deviceptr ptr = 0;
    emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr);
    return ptr;
}

} // namespace

TEST_CASE("without EMM_TRACK nothing is tracked, and the fast path is taken") {
    unsetenv("EMM_TRACK");
    emm_context *context = nullptr;
    REQUIRE(emm_set_plugin_entry(&AddressPlugin::entry, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    const auto never = [](const emm_allocation *, void *) { return 1; };
    CHECK(emm_foreach_allocation(context, never, nullptr) == EMM_E_NOT_SUPPORTED);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("EMM_TRACK"));
    CHECK(context->state == 0);
}

TEST_CASE("a variable that makes no sense has nothing tracked") {
    setenv("EMM_TRACK", "everything", 1);
    emm_context *context = nullptr;
    REQUIRE(emm_set_plugin_entry(&AddressPlugin::entry, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    CHECK(context->state == 0);
}

TEST_CASE("a live allocation is told with its size, stream, thread, age and library") {
    emm_context *context = tracked_context();
    const emm_deviceptr ptr = made_of(context, 4096);
    const auto found = live(context);
    REQUIRE(found.size() == 1);
    const emm_allocation &one = found.at(ptr);
    CHECK(one.struct_size == sizeof(emm_allocation));
    CHECK(one.memory == EMM_EVENT_DEVICE);
    CHECK(one.size == 4096);
    CHECK(one.stream == EMM_STREAM_LEGACY);
    CHECK(one.thread == uint32_t(gettid()));
    CHECK(one.sample == 1);
    CHECK(one.age_ns > 0);
    CHECK(one.age_ns < 600'000'000'000);
    CHECK(one.module == emm::observe::program_path());
    CHECK(one.offset != 0);
    CHECK((one.frame_count == 0 && one.frame_size == sizeof(emm_frame)));
    CHECK(emm_memfree(context, ptr, 4096, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(live(context).empty());
}

TEST_CASE("every kind of memory is tracked, raw and by handle, and nothing else") {
    emm_context *context = tracked_context();
    void *host = nullptr;
    emm_deviceptr managed = 0;
    alignas(4096) static char own[4096];
    REQUIRE(emm_memhostalloc(context, 64, 0, &host, nullptr) == EMM_OK);
    REQUIRE(emm_mempin(context, own, sizeof own, 0, nullptr) == EMM_OK);
    REQUIRE(emm_memallocmanaged(context, 128, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    emm_memory *handle = nullptr, *view = nullptr, *wrapped = nullptr;
    REQUIRE(emm_memory_alloc(context, 512, EMM_STREAM_LEGACY, &handle) == EMM_OK);
    REQUIRE(emm_memory_view(handle, 0, 256, &view) == EMM_OK);
    REQUIRE(emm_memory_wrap(context, 0x1234, nullptr, 8, nullptr, nullptr, &wrapped) == EMM_OK);
    std::map<uint32_t, uint64_t> bytes;
    for (const auto &[address, allocation] : live(context)) {
        bytes[allocation.memory] += allocation.size;
    }
    CHECK(bytes == std::map<uint32_t, uint64_t>{{EMM_EVENT_DEVICE, 512},
                                                {EMM_EVENT_HOST, 64},
                                                {EMM_EVENT_PIN, 4096},
                                                {EMM_EVENT_MANAGED, 128}});
    CHECK(emm_memory_release(wrapped) == EMM_OK);
    CHECK(emm_memory_release(handle) == EMM_OK);
    CHECK(live(context).size() == 4); // the view keeps it
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(emm_memfreemanaged(context, managed, 128, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(emm_memunpin(context, own, sizeof own) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 64, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(live(context).empty());
}

TEST_CASE("a free that is refused leaves the record, and an allocation that fails makes none") {
    emm_context *context = tracked_context();
    const emm_deviceptr ptr = made_of(context, 4096);
    CHECK(emm_memfree(context, ptr, 12, EMM_STREAM_LEGACY) == EMM_E_INVALID_VALUE);
    CHECK(emm_memfree(context, ptr + 64, 0, EMM_STREAM_LEGACY) < EMM_OK);
    CHECK(live(context).count(ptr) == 1);
    emm_deviceptr none = 0;
    CHECK(emm_memalloc(context, size_t(1) << 60, EMM_STREAM_LEGACY, &none) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_memalloc(context, 0, EMM_STREAM_LEGACY, &none) == EMM_OK);
    CHECK(live(context).size() == 1);
}

TEST_CASE("tracking alone keeps calls from the slow path, which a hook has them take meanwhile") {
    using namespace emm::core;
    static int told;
    emm_context *context = tracked_context();
    CHECK(context->state == state_tracked);
    const emm_deviceptr before = made_of(context, 64);
    const auto count = [](const emm_event *, void *) { told++; };
    REQUIRE(emm_set_event_hook(count, nullptr, nullptr) == EMM_OK);
    CHECK(context->state == (state_tracked | state_watched));
    const emm_deviceptr meanwhile = made_of(context, 64);
    CHECK(emm_memfree(context, before, 64, EMM_STREAM_LEGACY) == EMM_OK);
    REQUIRE(emm_set_event_hook(nullptr, nullptr, nullptr) == EMM_OK);
    CHECK(context->state == state_tracked);
    CHECK(told == 2);
    const auto found = live(context);
    CHECK((found.size() == 1 && found.count(meanwhile) == 1));
    CHECK(emm_memfree(context, meanwhile, 64, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(live(context).empty());
}

TEST_CASE("pinned memory of a plugin that has it is tracked") {
    setenv("EMM_TRACK", "module", 1);
    emm_plugin &table = Recorder::the().table;
    table.memhostalloc = [](emm_manager *, size_t, uint32_t, void **ret_host,
                            emm_deviceptr *) -> emm_status {
        static char memory[64];
        *ret_host = memory;
        return EMM_OK;
    };
    table.memhostfree = [](emm_manager *, void *, size_t, uint32_t, emm_stream) -> emm_status {
        return EMM_OK;
    };
    emm_context *context = recorded_context();
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(context, 64, 0, &host, nullptr) == EMM_OK);
    const auto found = live(context);
    REQUIRE(found.size() == 1);
    CHECK(found.begin()->first == reinterpret_cast<uintptr_t>(host));
    CHECK(found.begin()->second.memory == EMM_EVENT_HOST);
    CHECK(found.begin()->second.module == emm::observe::program_path());
    CHECK(emm_memhostfree(context, host, 64, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(live(context).empty());
}

TEST_CASE("what a plugin does wrong in a tracked call is told as in another") {
    setenv("EMM_TRACK", "module", 1);
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    Recorder::the().on_memalloc = [](size_t) -> emm_status { throw std::runtime_error("no"); };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_PLUGIN_EXCEPTION);
    CHECK((ptr == 0 && live(context).empty()));
    int tries = 0;
    Recorder::the().on_memalloc = [&](size_t) {
        return ++tries == 1 ? EMM_E_OUT_OF_MEMORY : EMM_OK;
    };
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK); // the second try
    CHECK(live(context).count(ptr) == 1);
    Recorder::the().on_memfree = []() -> emm_status { throw std::runtime_error("no"); };
    CHECK(emm_memfree(context, ptr, 64, EMM_STREAM_LEGACY) == EMM_E_PLUGIN_EXCEPTION);
    CHECK(live(context).count(ptr) == 1);
    CHECK(emm_memfree(context, 0, 64, EMM_STREAM_LEGACY) == EMM_OK);
}

TEST_CASE("a reset and a retirement drop the records of their context, and of no other") {
    emm_context *first = tracked_context(), *second = nullptr;
    REQUIRE(emm_context_from(new_context(), &second) == EMM_OK);
    made_of(first, 64);
    const emm_deviceptr kept = made_of(second, 64);
    CHECK(emm_context_reset(first) == EMM_OK);
    CHECK(live(first).empty());
    CHECK(live(second).count(kept) == 1);
    made_of(first, 64);
    CHECK(emm_context_retire(first) == EMM_OK);
    CHECK(live(first).empty());
    CHECK(live(second).size() == 1);
    CHECK(emm_shutdown() == EMM_OK);
    CHECK(live(second).empty());
}

TEST_CASE("a visitor may allocate, free and walk, and sees what was live when the walk began") {
    static emm_context *context;
    context = tracked_context();
    static std::vector<emm_deviceptr> made;
    for (int i = 0; i < 3; i++) {
        made.push_back(made_of(context, 64));
    }
    static int calls = 0;
    const auto visit = [](const emm_allocation *allocation, void *) {
        calls++;
        made_of(context, 128);
        CHECK(live(context).count(allocation->ptr) == 1);
        CHECK(emm_memfree(context, allocation->ptr, 64, EMM_STREAM_LEGACY) == EMM_OK);
        return 0;
    };
    CHECK(emm_foreach_allocation(context, visit, nullptr) == EMM_OK);
    CHECK(calls == 3);
    CHECK(live(context).size() == 3);
    const auto stop = [](const emm_allocation *, void *) { return ++calls; };
    CHECK(emm_foreach_allocation(context, stop, nullptr) == EMM_OK);
    CHECK(calls == 4);
}

TEST_CASE("threads allocate and free while others walk, and nothing is left or doubled") {
    emm_context *context = tracked_context();
    std::atomic<int> working{4};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&] {
            std::vector<emm_deviceptr> mine;
            for (int step = 0; step < 2000; step++) {
                emm_deviceptr ptr = 0;
                if (emm_memalloc(context, 256, EMM_STREAM_LEGACY, &ptr) == EMM_OK) {
                    mine.push_back(ptr);
                }
                if (mine.size() > 200 || step % 3 == 0) {
                    emm_memfree(context, mine.front(), 256, EMM_STREAM_LEGACY);
                    mine.erase(mine.begin());
                }
            }
            for (const emm_deviceptr ptr : mine) {
                emm_memfree(context, ptr, 256, EMM_STREAM_LEGACY);
            }
            working--;
        });
    }
    bool right = true;
    while (working != 0) {
        for (const auto &[ptr, allocation] : live(context)) {
            right = right && ptr != 0 && allocation.size == 256;
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(right);
    CHECK(live(context).empty());
    CHECK(emm::core::lost_records() == 0);
}

TEST_CASE("a sample tells of about one allocation in N, each of which stands for N") {
    emm_context *context = tracked_context("module:sample=1/10");
    for (int i = 0; i < 5000; i++) {
        made_of(context, 64);
    }
    const auto found = live(context);
    CHECK(found.size() > 350); // 7 standard deviations from 500
    CHECK(found.size() < 650);
    CHECK(found.begin()->second.sample == 10);
}

TEST_CASE("many records are kept apart while their table grows and shrinks") {
    emm_context *context = tracked_context();
    std::map<emm_deviceptr, size_t> sizes;
    unsigned random = 1;
    for (int step = 0; step < 20'000; step++) {
        random = random * 1664525 + 1013904223;
        const size_t size = 16 + random % 5 * 64;
        if (random >> 16 & 1 || sizes.empty()) {
            sizes[made_of(context, size)] = size;
        } else {
            const auto place =
                std::next(sizes.begin(), int(random >> 8) % std::min<int>(int(sizes.size()), 50));
            CHECK(emm_memfree(context, place->first, place->second, EMM_STREAM_LEGACY) == EMM_OK);
            sizes.erase(place);
        }
    }
    std::map<emm_deviceptr, size_t> told;
    for (const auto &[ptr, allocation] : live(context)) {
        told[ptr] = allocation.size;
    }
    CHECK(told == sizes);
}

TEST_CASE("who calls through the CUDA runtime is the one that asked") {
    emm_context *context = tracked_context();
    emm_deviceptr ptr = 0;
    REQUIRE(stand_in_malloc(&emm_memalloc, context, 64, &ptr) == EMM_OK);
    CHECK(live(context).at(ptr).module == emm::observe::program_path());
}

TEST_CASE("with stack an allocation tells the calls that led to it, each path once") {
    emm_context *context = tracked_context("stack");
    emm_deviceptr loop[2] = {}, through = 0;
    const volatile size_t times = std::size(loop); // the compiler cannot know it: one call
    for (size_t i = 0; i < times; ++i) {
        loop[i] = made_of(context, 64);
    }
    const emm_deviceptr elsewhere = made_of(context, 64);
    REQUIRE(stand_in_malloc(&emm_memalloc, context, 64, &through) == EMM_OK);
    const auto found = live(context);
    const emm_allocation &first = found.at(loop[0]), &second = found.at(loop[1]);
    REQUIRE(first.frame_count > 3);
    CHECK(first.frames[0].module == std::string(first.module));
    CHECK(first.frames[0].offset == first.offset);
    CHECK(first.frames[0].function == nullptr);
    CHECK(first.frames == second.frames);
    CHECK(first.frames != found.at(elsewhere).frames);
    CHECK(first.frames[0].offset == found.at(elsewhere).frames[0].offset); // in made_of
    CHECK(first.frames[1].offset != found.at(elsewhere).frames[1].offset);
    const emm_allocation &last = found.at(through);
    REQUIRE(last.frame_count > 2);
    CHECK(last.frames[0].module == emm::observe::program_path());
}

namespace {

[[gnu::noinline]] emm_deviceptr deep(emm_context *context, int depth) {
    const emm_deviceptr ptr = depth == 0 ? made_of(context, 64) : deep(context, depth - 1);
    asm volatile("" ::: "memory");
    return ptr;
}

} // namespace

TEST_CASE("of a deep stack the innermost 64 calls are told") {
    emm_context *context = tracked_context("stack");
    const emm_deviceptr ptr = deep(context, 500);
    CHECK(live(context).at(ptr).frame_count == 64);
}

TEST_CASE("threads that come by the same path share its stack") {
    emm_context *context = tracked_context("stack");
    in_threads(4, [&](size_t) {
        for (int depth = 0; depth < 200; depth++) {
            deep(context, depth % 20);
        }
    });
    std::map<const emm_frame *, int> uses;
    for (const auto &[ptr, allocation] : live(context)) {
        REQUIRE(allocation.frame_count > 0);
        uses[allocation.frames]++;
    }
    CHECK(uses.size() == 20);
    CHECK(uses.begin()->second == 40);
}
