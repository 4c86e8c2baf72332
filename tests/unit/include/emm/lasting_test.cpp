// Behaviour: emm.hpp's statistics, and states that last as long as an object.
#include "gpu.h"

#include <type_traits>
#include <vector>

template <class... Arguments> void call(const char *name, Arguments... arguments) {
    using Entry = int (*)(Arguments...);
    REQUIRE(reinterpret_cast<Entry>(emm_driver_entry(name, 12000))(arguments...) == 0);
}

template <class Type>
constexpr bool moves_only = std::is_nothrow_move_constructible_v<Type> &&
                            !std::is_copy_constructible_v<Type> && !std::is_copy_assignable_v<Type>;
static_assert(moves_only<emm::StreamRegistration> && moves_only<emm::PressureCallback> &&
              moves_only<emm::EventHook> && moves_only<emm::Export> && moves_only<emm::Array>);

TEST_CASE("event hooks are called while they live, and the one before is back afterwards") {
    std::vector<uint64_t> outer, inner;
    const auto note_outer = [&](const emm_event &event) { outer.push_back(event.size); };
    const auto note_inner = [&](const emm_event &event) { inner.push_back(event.size); };
    {
        const emm::EventHook first(note_outer);
        {
            emm::EventHook second(note_inner);
            const emm::EventHook moved(std::move(second));
            emm::MemoryPointer(gpu(), 128);
        }
        CHECK(inner == std::vector<uint64_t>{128, 128});
        CHECK(outer.empty());
        emm::MemoryPointer(gpu(), 256);
    }
    emm::MemoryPointer(gpu(), 512);
    CHECK(outer == std::vector<uint64_t>{256, 256});
    CHECK(inner.size() == 2);
}

namespace {

int plain_calls = 0;
void note_plainly(const emm_event &) {
    plain_calls++;
}
size_t give_nothing(emm_context *, size_t) {
    plain_calls++;
    return 0;
}

} // namespace

TEST_CASE("a hook and a pressure callback may be plain functions") {
    const emm::EventHook hook(note_plainly);
    const emm::PressureCallback callback(give_nothing);
    size_t total = 0, free = 0;
    REQUIRE(emm_get_memory_info(gpu(), &free, &total) == EMM_OK);
    const emm::MemoryPointer needed(gpu(), 1 << 20);
    CHECK(plain_calls == 1);
    CHECK_THROWS_AS(emm::MemoryPointer(gpu(), total), emm::OutOfMemory);
    CHECK(plain_calls == 3);
}

TEST_CASE("tags name what is allocated while they live") {
    std::vector<std::string> tags;
    const auto note = [&](const emm_event &event) { tags.push_back(event.tag ? event.tag : ""); };
    const emm::EventHook hook(note);
    {
        const emm::Tag serve("serve");
        {
            const emm::Tag decode("decode");
            emm::MemoryPointer(gpu(), 128);
        }
        emm::MemoryPointer(gpu(), 128);
    }
    CHECK(tags == std::vector<std::string>{"serve/decode", "serve/decode", "serve", "serve"});
    CHECK_THROWS_AS(emm::Tag(""), emm::Error);
}

TEST_CASE("peaks begin anew") {
    emm_context *const pool = emm::context_named(gpu(), "peaks");
    emm::MemoryPointer(pool, 4096);
    CHECK(emm::stats(pool).peak_live_bytes == 4096);
    emm::reset_peaks(pool);
    CHECK(emm::stats(pool).peak_live_bytes == 0);
}

TEST_CASE("a pressure callback is asked while it lives") {
    size_t total = 0, free = 0;
    REQUIRE(emm_get_memory_info(gpu(), &free, &total) == EMM_OK);
    emm::MemoryPointer kept(gpu(), 1 << 20);
    int asked = 0;
    const auto give_back = [&](emm_context *context, size_t bytes) -> size_t {
        CHECK(context == gpu());
        CHECK(bytes > 0);
        asked++;
        kept = {};
        return 1 << 20;
    };
    const emm::MemoryPointer needed(gpu(), 1 << 20);
    {
        const emm::PressureCallback callback(give_back);
        CHECK_THROWS_AS(emm::MemoryPointer(gpu(), total), emm::OutOfMemory);
        CHECK(asked == 1);
        CHECK_FALSE(kept);
    }
    CHECK_THROWS_AS(emm::MemoryPointer(gpu(), total), emm::OutOfMemory);
    CHECK(asked == 1);
}

TEST_CASE("a stream is registered until its registration ends, wherever that has moved") {
    call("cuCtxSetCurrent", info_of(gpu()).cuda_context);
    emm_stream stream = nullptr;
    call("cuStreamCreate", &stream, 1u);
    emm::StreamRegistration first(gpu(), stream);
    const emm::StreamRegistration moved(std::move(first));
    CHECK_THROWS_AS(emm::StreamRegistration(gpu(), EMM_STREAM_UNORDERED), emm::Error);
    emm::MemoryPointer(gpu(), 256, stream);
}

TEST_CASE("statistics tell of pending frees, which a trim runs, and a reset drops what is live") {
    emm::MemoryPointer(gpu(), 1 << 20);
    CHECK(emm::stats(gpu()).pending_bytes >= 1 << 20);
    emm::trim(gpu());
    CHECK(emm::stats(gpu()).pending_bytes == 0);
    const emm::MemoryPointer live(gpu(), 1 << 20);
    CHECK(emm::stats(gpu()).live_bytes >= 1 << 20);
    CHECK(emm::device_account(0).managers_bytes >= 1 << 20);
    CHECK_THROWS_AS(emm::device_account(1000), emm::Error);
    emm::reset(gpu());
    CHECK(emm::stats(gpu()).live_bytes == 0);
    CHECK(live.info().state == EMM_MEMORY_INERT);
}
