// Behaviour: emm.hpp as the allocator of other libraries, without those libraries.
#include "gpu.h"

#include <cstring>
#include <cuda.h>
#include <memory_resource>
#include <vector>

namespace {

struct device_accessible {};

// These hold their values as cuda::stream_ref and thrust::device_ptr do.
struct StreamRef {
    emm_stream stream;
    emm_stream get() const { return stream; }
};

template <class T> struct DevicePointer {
    T *raw = nullptr;
    DevicePointer() = default;
    explicit DevicePointer(T *pointer) : raw(pointer) {}
    T *get() const { return raw; }
};

} // namespace

TEST_CASE("a failure is thrown with its status and its sentence") {
    try {
        emm::context_for_device(4711);
        FAIL("there is no such device");
    } catch (const emm::Error &error) {
        CHECK(error.status() < EMM_OK);
        CHECK(std::string(error.what()) == emm_last_error()->text);
    }
    CHECK(emm::check(EMM_S_IGNORED) == EMM_S_IGNORED);
}

TEST_CASE("memory that runs out is thrown as the bad_alloc that containers expect") {
    emm::DeviceResource<> resource(gpu());
    CHECK_THROWS_AS(resource.allocate(size_t{1} << 60), std::bad_alloc);
    try {
        resource.allocate(size_t{1} << 60);
    } catch (const emm::OutOfMemory &error) {
        CHECK(error.status() == EMM_E_OUT_OF_MEMORY);
        CHECK(std::string(error.what()) == emm_last_error()->text);
    }
}

TEST_CASE("a pmr container lives in pinned memory and gives it back") {
    const uint64_t before = stats().host_live_bytes;
    {
        emm::PinnedResource pinned(gpu());
        std::pmr::vector<int> numbers({1, 2, 3}, &pinned);
        numbers.resize(1000, 4);
        CHECK(numbers.back() == 4);
        unsigned type = 0;
        const auto attribute = reinterpret_cast<decltype(&cuPointerGetAttribute)>(
            emm_driver_entry("cuPointerGetAttribute", 12000));
        REQUIRE(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                          reinterpret_cast<CUdeviceptr>(numbers.data())) == CUDA_SUCCESS);
        CHECK(type == CU_MEMORYTYPE_HOST);
        CHECK(stats().host_live_bytes >= before + 1000 * sizeof(int));
    }
    CHECK(stats().host_live_bytes == before);
}

TEST_CASE("pinned resources are equal if one can free what the other gave") {
    const emm::PinnedResource one(gpu()), same(gpu()), other(gpu(), EMM_HOST_PORTABLE);
    CHECK(one == same);
    CHECK(one != other);
    CHECK(one != *std::pmr::new_delete_resource());
}

TEST_CASE("device memory of an alignment beyond 256 is refused, not ignored") {
    emm::DeviceResource<> device(gpu());
    CHECK_THROWS_AS(device.allocate(64, 512), emm::Error);
}

TEST_CASE("pinned memory has the alignment that is asked for, and goes back") {
    const uint64_t before = stats().host_live_bytes;
    emm::PinnedResource pinned(gpu());
    for (size_t wanted = 1; wanted <= size_t(1) << 22; wanted *= 2) {
        void *const blocks[] = {pinned.allocate(0, wanted), pinned.allocate(3000, wanted)};
        CHECK(reinterpret_cast<uintptr_t>(blocks[0]) % wanted == 0);
        CHECK(reinterpret_cast<uintptr_t>(blocks[1]) % wanted == 0);
        std::memset(blocks[1], 1, 3000);
        pinned.deallocate(blocks[0], 0, wanted);
        pinned.deallocate(blocks[1], 3000, wanted);
    }
    volatile size_t most = SIZE_MAX - 100; // the compiler would warn of a constant
    CHECK_THROWS_AS(pinned.allocate(most, 4096), std::bad_alloc);
    CHECK(stats().host_live_bytes == before);
}

TEST_CASE("the pools of std::pmr stand on pinned memory, whatever the size") {
    emm::PinnedResource pinned(gpu());
    std::pmr::unsynchronized_pool_resource pool(&pinned);
    for (size_t size = 1; size <= size_t(1) << 21; size *= 2) {
        std::memset(pool.allocate(size), 1, size);
    }
}

TEST_CASE("a device resource speaks the old names and the new ones") {
    emm::DeviceResource<device_accessible> resource(gpu());
    get_property(resource, device_accessible{});
    CHECK(resource == emm::DeviceResource<device_accessible>(gpu()));
    const uint64_t before = stats().live_bytes;
    const StreamRef stream{EMM_STREAM_LEGACY};
    void *const blocks[] = {resource.allocate(1024), resource.allocate_async(1024, 16, stream),
                            resource.allocate_sync(1024, 16), resource.allocate(stream, 1024, 16),
                            resource.allocate(EMM_STREAM_PER_THREAD, 1024)};
    CHECK(stats().live_bytes == before + 5 * 1024);
    resource.deallocate(blocks[0], 1024);
    resource.deallocate_async(blocks[1], 1024, 16, stream);
    resource.deallocate_sync(blocks[2], 1024, 16);
    resource.deallocate(stream, blocks[3], 1024, 16);
    resource.deallocate(EMM_STREAM_PER_THREAD, blocks[4], 1024);
    CHECK(stats().live_bytes == before);
}

TEST_CASE("a device allocator counts in elements and speaks any pointer") {
    emm::DeviceAllocator<double, DevicePointer<double>> doubles(gpu(), EMM_STREAM_LEGACY);
    using Bytes = std::allocator_traits<decltype(doubles)>::rebind_alloc<char>;
    static_assert(std::is_same_v<Bytes::pointer, DevicePointer<char>>);
    const uint64_t before = stats().live_bytes;
    const DevicePointer<double> block = doubles.allocate(128);
    CHECK(stats().live_bytes == before + 1024);
    doubles.deallocate(block, 128);
    CHECK(stats().live_bytes == before);

    const Bytes bytes(doubles);
    CHECK(bytes.stream() == EMM_STREAM_LEGACY);
    CHECK(bytes == Bytes(gpu(), EMM_STREAM_LEGACY));
    CHECK(bytes != Bytes(gpu()));
}

TEST_CASE("device allocators of different elements are equal if one can free for the other") {
    const emm::DeviceAllocator<int> ints(gpu());
    const emm::DeviceAllocator<double, DevicePointer<double>> doubles(gpu());
    const emm::DeviceAllocator<char> elsewhere(gpu(), EMM_STREAM_LEGACY);
    CHECK(ints == emm::DeviceAllocator<int>(gpu()));
    CHECK(ints == doubles);
    CHECK(doubles == ints);
    CHECK(ints != elsewhere);
}

TEST_CASE("more elements than there are bytes are refused before the plugin is asked") {
    emm::DeviceAllocator<double> allocator(gpu());
    CHECK_THROWS_AS(allocator.allocate(SIZE_MAX / 4), std::bad_array_new_length);
}

TEST_CASE("frees under a guard stay pending until it ends", "[passthrough]") {
    const auto pending = [] { return counters().pending_count; };
    emm::DeviceResource<> resource(gpu());
    {
        const emm::DeferCleanup guard(gpu());
        for (int i = 0; i < 20; ++i) {
            resource.deallocate(resource.allocate(64), 64);
        }
        CHECK(pending() >= 20);
    }
    CHECK(pending() == 0);
}
