// Behaviour: the hook that a program sets is told of each allocation and free.
#include "catch.h"
#include "parts/threads.h"
#include "recorder.h"

#include <atomic>
#include <malloc.h>
#include <thread>

namespace {

struct Seen {
    std::vector<emm_event> events;
    emm_event_hook_info next = {};

    static void note(const emm_event *event, void *user_data) {
        Seen &seen = *static_cast<Seen *>(user_data);
        seen.events.push_back(*event);
        if (seen.next.hook) {
            seen.next.hook(event, seen.next.user_data);
        }
    }
};

} // namespace

TEST_CASE("the hook is told of each allocation and free with old and new address and size") {
    emm_context *context = recorded_context();
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    emm_deviceptr ptr = 0;
    const auto stream = reinterpret_cast<emm_stream>(&seen);
    CHECK(emm_memalloc(context, 64, stream, &ptr) == EMM_OK);
    CHECK(emm_memfree(context, ptr, 64, stream) == EMM_OK);
    REQUIRE(seen.events.size() == 2);
    const emm_event &made = seen.events[0], &freed = seen.events[1];
    CHECK(made.struct_size == sizeof(emm_event));
    CHECK(made.memory == EMM_EVENT_DEVICE);
    CHECK(made.context == context);
    CHECK((made.old_ptr == 0 && made.new_ptr == ptr));
    CHECK((freed.old_ptr == ptr && freed.new_ptr == 0));
    CHECK((made.size == 64 && freed.size == 64));
    CHECK((made.stream == stream && freed.stream == stream));
    CHECK((made.status == EMM_OK && freed.status == EMM_OK));
}

TEST_CASE("an event tells the tags that its thread is inside of") {
    emm_context *context = recorded_context();
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    const auto allocate = [&] {
        emm_deviceptr ptr = 0;
        emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
    };
    allocate();
    for (int i = 0; i < 2; i++) { // the second time they are known
        CHECK(emm_tag_begin("serve") == EMM_OK);
        CHECK(emm_tag_begin("de\ncode") == EMM_OK);
        allocate();
        CHECK(emm_tag_end() == EMM_OK);
        std::thread(allocate).join();
        allocate();
        CHECK(emm_tag_end() == EMM_OK);
    }
    CHECK(emm_tag_end() == EMM_E_INVALID_VALUE);
    CHECK(emm_tag_begin(nullptr) == EMM_E_INVALID_VALUE);
    CHECK(emm_tag_begin("") == EMM_E_INVALID_VALUE);
    std::vector<std::string> tags;
    for (const emm_event &event : seen.events) {
        tags.push_back(event.tag ? event.tag : "");
    }
    CHECK(tags ==
          std::vector<std::string>{"", "serve/de code", "", "serve", "serve/de code", "", "serve"});
}

TEST_CASE("every kind of memory has its events") {
    emm_context *context = recorded_context();
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    void *host = nullptr;
    emm_deviceptr managed = 0;
    char own[64];
    CHECK(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK);
    CHECK(emm_memhostfree(context, host, 4096, 0, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(emm_mempin(context, own, sizeof own, 0, nullptr) == EMM_OK);
    CHECK(emm_memunpin(context, own, sizeof own) == EMM_OK);
    CHECK(emm_memallocmanaged(context, 4096, EMM_ATTACH_GLOBAL, &managed) == EMM_OK);
    CHECK(emm_memfreemanaged(context, managed, 0, EMM_STREAM_LEGACY) == EMM_OK);
    std::vector<uint32_t> memory;
    for (const emm_event &event : seen.events) {
        memory.push_back(event.memory);
    }
    CHECK(memory == std::vector<uint32_t>{EMM_EVENT_HOST, EMM_EVENT_HOST, EMM_EVENT_PIN,
                                          EMM_EVENT_PIN, EMM_EVENT_MANAGED, EMM_EVENT_MANAGED});
    CHECK(seen.events[0].new_ptr == reinterpret_cast<uintptr_t>(host));
    CHECK(seen.events[3].old_ptr == reinterpret_cast<uintptr_t>(own));
    CHECK(seen.events[5].size == 0);
}

TEST_CASE("a failed allocation is an event without an address, size 0 is none") {
    emm_context *context = recorded_context();
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    emm_deviceptr ptr = 7;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(emm_memalloc(context, 0, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(emm_memfree(context, 0, 0, EMM_STREAM_LEGACY) == EMM_OK);
    REQUIRE(seen.events.size() == 1);
    CHECK(seen.events[0].status == EMM_E_OUT_OF_MEMORY);
    CHECK((seen.events[0].old_ptr == 0 && seen.events[0].new_ptr == 0));
}

TEST_CASE("setting a hook tells the one before, which it can go on to call") {
    emm_context *context = recorded_context();
    Seen first, second;
    emm_event_hook_info previous = {&Seen::note, &second};
    REQUIRE(emm_set_event_hook(&Seen::note, &first, &previous) == EMM_OK);
    CHECK(previous.hook == nullptr);
    REQUIRE(emm_set_event_hook(&Seen::note, &second, &second.next) == EMM_OK);
    CHECK((second.next.hook == &Seen::note && second.next.user_data == &first));
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK((first.events.size() == 1 && second.events.size() == 1));
    REQUIRE(emm_set_event_hook(nullptr, nullptr, &previous) == EMM_OK);
    CHECK(previous.user_data == &second);
    CHECK(emm_memfree(context, ptr, 64, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(second.events.size() == 1);
}

TEST_CASE("a hook may allocate, and is not called for that") {
    emm_context *context = recorded_context();
    static int calls = 0;
    const emm_event_hook hook = [](const emm_event *event, void *) {
        ++calls;
        emm_deviceptr ptr = 0;
        CHECK(emm_memalloc(event->context, 32, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
        CHECK(emm_memfree(event->context, ptr, 32, EMM_STREAM_LEGACY) == EMM_OK);
    };
    REQUIRE(emm_set_event_hook(hook, nullptr, nullptr) == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(calls == 1);
}

TEST_CASE("an exception out of the hook changes nothing for the caller") {
    emm_context *context = recorded_context();
    REQUIRE(emm_set_event_hook([](const emm_event *, void *) { throw 1; }, nullptr, nullptr) ==
            EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(emm_memfree(context, ptr, 64, EMM_STREAM_LEGACY) == EMM_OK);
}

TEST_CASE("a hook that is set before any context is served is told from the first event on") {
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(recorded_context(), 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK(seen.events.size() == 1);
}

TEST_CASE("a free after shutdown is still told") {
    emm_context *context = recorded_context();
    Seen seen;
    REQUIRE(emm_set_event_hook(&Seen::note, &seen, nullptr) == EMM_OK);
    REQUIRE(emm_shutdown() == EMM_OK);
    CHECK(emm_memfree(context, 0x1000, 64, EMM_STREAM_LEGACY) == EMM_OK);
    CHECK(seen.events.size() == 1);
}

namespace {

// Carries out the work while 4 threads allocate and free.
void beside_allocations(emm_context *context, const std::function<void()> &work) {
    std::atomic<bool> stop{false};
    const auto allocate = [&](size_t) {
        while (!stop) {
            emm_deviceptr ptr = 0;
            emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
            emm_memfree(context, ptr, 64, EMM_STREAM_LEGACY);
        }
    };
    in_threads(4, allocate, [&] {
        work();
        stop = true;
    });
}

} // namespace

TEST_CASE("hooks come and go while 4 threads allocate") {
    emm_context *context = recorded_context();
    static std::atomic<uint64_t> told{0};
    const emm_event_hook hook = [](const emm_event *, void *) { ++told; };
    beside_allocations(context, [&] {
        while (told < 1000) {
            emm_set_event_hook(hook, nullptr, nullptr);
            std::this_thread::yield();
            emm_set_event_hook(nullptr, nullptr, nullptr);
        }
    });
    const uint64_t before = told;
    emm_deviceptr ptr = 0;
    emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
    CHECK(told == before);
}

TEST_CASE("hooks that have been replaced take no memory") {
    static char data[100'000];
    emm_event_hook_info previous = {};
    const size_t before = mallinfo2().uordblks; // 0 under sanitizers, as after
    for (char &each : data) {
        REQUIRE(emm_set_event_hook(&Seen::note, &each, &previous) == EMM_OK);
    }
    CHECK(mallinfo2().uordblks < before + 4096);
    CHECK(emm_set_event_hook(nullptr, nullptr, &previous) == EMM_OK);
    CHECK(previous.user_data == std::end(data) - 1);
}

TEST_CASE("a hook is always called with its own user data, however often others replace it") {
    emm_context *context = recorded_context();
    static int data[2];
    static std::atomic<uint64_t> told{0}, mistaken{0};
    static const emm_event_hook first = [](const emm_event *, void *user_data) {
        ++told;
        mistaken += user_data != &data[0];
    };
    static const emm_event_hook second = [](const emm_event *, void *user_data) {
        ++told;
        mistaken += user_data != &data[1];
    };
    beside_allocations(context, [&] {
        while (told < 10'000) {
            emm_set_event_hook(first, &data[0], nullptr);
            emm_set_event_hook(second, &data[1], nullptr);
        }
    });
    CHECK(mistaken == 0);
}

TEST_CASE("a hook sees the error of a failed call, and its own failures leave that error") {
    static std::string seen;
    emm_context *context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().host->fail(EMM_E_DRIVER, 999, "the driver is tired");
    };
    REQUIRE(emm_set_event_hook(
                [](const emm_event *, void *) {
                    seen = emm_last_error()->text;
                    CHECK(emm_memory_free(nullptr) == EMM_E_INVALID_VALUE);
                },
                nullptr, nullptr) == EMM_OK);
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_DRIVER);
    CHECK(seen == "the driver is tired");
    CHECK(emm_last_error()->code == EMM_E_DRIVER);
    CHECK(emm_last_error()->driver_result == 999);
    CHECK(emm_last_error()->text == seen);
}
