// Behaviour: emm.hpp's references to memory.
#include "gpu.h"

#include <algorithm>
#include <memory>
#include <type_traits>

static_assert(std::is_base_of_v<emm::MemoryPointer, emm::MappedMemory>); // as in NBEP 7
static_assert(std::is_nothrow_move_constructible_v<emm::MemoryPointer>);
static_assert(std::is_nothrow_move_assignable_v<emm::PinnedMemory>);

TEST_CASE("memory goes back with its last reference, wherever that has moved") {
    const uint64_t before = stats().live_bytes;
    emm::MemoryPointer kept;
    CHECK_FALSE(kept);
    {
        emm::MemoryPointer first(gpu(), 4096);
        const emm::MemoryPointer copy = first;
        CHECK(copy.ptr() == first.ptr());
        kept = std::move(first);
        CHECK_FALSE(first);
        CHECK(first.size() == 0);
    }
    CHECK(kept.size() == 4096);
    CHECK(kept.ptr() % 256 == 0);
    CHECK(kept.data<char>() == kept.data());
    CHECK(stats().live_bytes == before + 4096);
    kept = {};
    CHECK(stats().live_bytes == before);
}

TEST_CASE("memory of a named pool is its pool's") {
    emm_context *const pool = emm::context_named(gpu(), "kv-cache");
    CHECK(emm::context_named(pool, "kv-cache") == pool);
    const emm::MemoryPointer memory(pool, 4096);
    CHECK(memory.context() == pool);
    CHECK(emm::stats(pool).live_bytes == 4096);
    CHECK_THROWS_AS(emm::context_named(gpu(), "kv cache"), emm::Error);
}

TEST_CASE("a view is of its memory's class, keeps the whole, and stays inside it") {
    emm::MemoryPointer view;
    {
        const emm::MemoryPointer whole(gpu(), 1024);
        view = whole.view(256, 512);
        CHECK(view.ptr() == whole.ptr() + 256);
        CHECK(view.size() == 256);
        CHECK_THROWS_AS(whole.view(512, 2048), emm::Error);
    }
    CHECK(view.info().state == EMM_MEMORY_LIVE);
}

TEST_CASE("memory freed explicitly is freed for all references, and only once") {
    emm::MemoryPointer one(gpu(), 1024);
    emm::MemoryPointer other = one;
    one.free();
    CHECK(other.info().state == EMM_MEMORY_FREED);
    try {
        other.free();
        FAIL("freed twice");
    } catch (const emm::Error &error) {
        CHECK(error.status() == EMM_E_ALREADY_FREED);
    }
}

TEST_CASE("a handle of another kind is refused by a class that needs its address, and given back") {
    const auto handle_of = [](uint32_t flags) {
        emm_memory *handle = nullptr;
        REQUIRE(emm_memory_hostalloc(gpu(), 4096, flags, &handle) == EMM_OK);
        return handle;
    };
    const auto status_of = [](const auto &take) {
        try {
            take();
            return emm_status(EMM_OK);
        } catch (const emm::Error &error) {
            return error.status();
        }
    };
    const uint64_t before = stats().host_live_bytes;
    CHECK(status_of([&] { emm::MemoryPointer{handle_of(0)}; }) == EMM_E_INVALID_VALUE);
    CHECK(status_of([&] { emm::MappedMemory{handle_of(0)}; }) == EMM_E_INVALID_VALUE);
    CHECK(status_of([&] { emm::MappedMemory{handle_of(EMM_HOST_MAPPED)}; }) == EMM_OK);
    CHECK(status_of([&] { emm::PinnedMemory{handle_of(0)}; }) == EMM_OK);
    const auto device = [] { return emm::MemoryPointer(gpu(), 64).release(); };
    CHECK(status_of([&] { emm::PinnedMemory{device()}; }) == EMM_E_INVALID_VALUE);
    CHECK(status_of([&] { emm::ManagedMemory{device()}; }) == EMM_E_INVALID_VALUE);
    CHECK(status_of([&] { emm::MappedMemory{device()}; }) == EMM_E_INVALID_VALUE);
    CHECK(stats().host_live_bytes == before);
    CHECK(status_of([] { emm::MemoryPointer(gpu(), 0).view(0, 0); }) == EMM_OK);
}

TEST_CASE("an owner in C++ is shared until the memory is given up") {
    auto owner = std::make_shared<int>(1);
    const emm::MemoryPointer memory(gpu(), 64);
    {
        const auto wrapped = emm::MemoryPointer::wrap(gpu(), memory.ptr(), 64, owner);
        const emm::MemoryPointer copy = wrapped;
        CHECK(wrapped.kind() == EMM_KIND_EXTERNAL);
        CHECK(owner.use_count() == 2);
    }
    CHECK(owner.use_count() == 1);
}

TEST_CASE("pinned, mapped and managed memory are spans of the host") {
    const emm::PinnedMemory pinned(gpu(), 4 * sizeof(int));
    const emm::MappedMemory mapped(gpu(), 4 * sizeof(int));
    const emm::ManagedMemory managed(gpu(), 4 * sizeof(int));
    for (const std::span<int> span :
         {pinned.span<int>(), mapped.span<int>(), managed.span<int>()}) {
        REQUIRE(span.size() == 4);
        std::fill(span.begin(), span.end(), 7);
        CHECK(span.back() == 7);
    }
    CHECK(mapped.ptr() != 0);
    CHECK(managed.data<int>() == managed.span<int>().data());
    CHECK(pinned.view(4, 12).span<int>().size() == 2);
    CHECK(pinned.view(4, 12).span<int>()[0] == 7);
}

TEST_CASE("memory of the caller's own is pinned as long as a reference is left") {
    auto owner = std::make_shared<std::vector<std::byte>>(8192);
    {
        const auto pinned = emm::PinnedMemory::pin(gpu(), *owner, 0, owner);
        const auto copy = pinned;
        CHECK(copy.span().data() == owner->data());
        CHECK(owner.use_count() == 2);
        CHECK_THROWS_AS(emm::MappedMemory::pin(gpu(), *owner), emm::Error);
    }
    CHECK(owner.use_count() == 1);
    const auto mapped = emm::MappedMemory::pin(gpu(), *owner);
    CHECK(mapped.ptr() != 0);
}

TEST_CASE("a reference is handed to the C interface and back") {
    emm::MemoryPointer memory(gpu(), 64);
    emm_memory *const handle = memory.release();
    CHECK_FALSE(memory);
    const emm::MemoryPointer again(handle);
    CHECK(again.get() == handle);
    CHECK(again.context() == gpu());
}
