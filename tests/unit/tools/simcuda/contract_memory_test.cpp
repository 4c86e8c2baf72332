// Behaviour: CUDA's promises about memory: the same on real hardware and simulated.
#include "pending_work.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

TEST_CASE("device memory is aligned, distinct and given back") {
    const Device device;
    size_t before = 0, during = 0, total = 0;
    REQUIRE(cu().cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
    {
        const Block small(1), large(size_t(64) << 20);
        CHECK(small % 512 == 0);
        CHECK(large % 512 == 0);
        CHECK(small != large);
        REQUIRE(cu().cuMemGetInfo(&during, &total) == CUDA_SUCCESS);
        CHECK(during + (size_t(64) << 20) <= before);
    }
    CHECK(cu().cuMemGetInfo(&during, &total) == CUDA_SUCCESS);
    CHECK(during <= total);
}

TEST_CASE("allocating needs a current context, freeing does not") {
    const Device device;
    CUdeviceptr address = 0, other = 0;
    CUcontext popped = nullptr;
    REQUIRE(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(cu().cuMemAlloc(&other, 4096) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
    CHECK(cu().cuMemFree(0) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxPushCurrent(device.context) == CUDA_SUCCESS);
}

TEST_CASE("size 0 and more than there is are refused") {
    const Device device;
    CUdeviceptr address = 7;
    CHECK(cu().cuMemAlloc(&address, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemAlloc(&address, size_t(1) << 46) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("what is copied in comes out again") {
    const Device device;
    const Block block(1 << 20);
    std::vector<unsigned char> in(1 << 20), out(1 << 20);
    for (size_t i = 0; i < in.size(); ++i) {
        in[i] = static_cast<unsigned char>(i * 7);
    }
    CHECK(cu().cuMemcpyHtoD(block, in.data(), in.size()) == CUDA_SUCCESS);
    CHECK(cu().cuMemcpyDtoH(out.data(), block, out.size()) == CUDA_SUCCESS);
    CHECK(in == out);
    CHECK(cu().cuMemsetD8(block + 10, 0xAB, 10) == CUDA_SUCCESS);
    CHECK(byte_at(block + 9) == in[9]);
    CHECK(byte_at(block + 19) == 0xAB);
    CHECK(byte_at(block + 20) == in[20]);
}

TEST_CASE("a pointer into a block tells of the whole block") {
    const Device device;
    const Block block(1 << 20);
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned type = 0;
    int ordinal = -1;
    CUcontext context = nullptr;
    CHECK(cu().cuMemGetAddressRange(&base, &size, block + 1000) == CUDA_SUCCESS);
    CHECK(base == block);
    CHECK(size == 1 << 20);
    const CUdeviceptr inside = block + 1000;
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) ==
          CUDA_SUCCESS);
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(cu().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) ==
          CUDA_SUCCESS);
    CHECK(ordinal == 0);
    CHECK(cu().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside) ==
          CUDA_SUCCESS);
    CHECK(context == device.context);
    CHECK(cu().cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) ==
          CUDA_SUCCESS);
    CHECK(base == block);
}

TEST_CASE("a buffer's id is its own, also at an address that came back") {
    const Device device;
    unsigned long long ids[2] = {};
    for (unsigned long long &id : ids) {
        const Block block(1 << 20);
        CHECK(cu().cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, block) ==
              CUDA_SUCCESS);
    }
    CHECK(ids[0] != ids[1]);
}

TEST_CASE("an address that CUDA does not know is an invalid value, or a NULL among many") {
    const Device device;
    int on_stack = 0;
    unsigned type = 77;
    const auto address = reinterpret_cast<CUdeviceptr>(&on_stack);
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
          CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *where[] = {&type};
    CHECK(cu().cuPointerGetAttributes(1, which, where, address) == CUDA_SUCCESS);
    CHECK(type == 0);
}

TEST_CASE("pinned memory is known to CUDA and seen by the device") {
    const Device device;
    void *host = nullptr;
    CUdeviceptr mapped = 0;
    unsigned type = 0;
    REQUIRE(cu().cuMemHostAlloc(&host, 10000, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetDevicePointer(&mapped, host, 0) == CUDA_SUCCESS);
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, mapped) ==
          CUDA_SUCCESS);
    CHECK(type == CU_MEMORYTYPE_HOST);
    CHECK(cu().cuMemsetD8(mapped, 5, 10000) == CUDA_SUCCESS);
    CHECK(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(static_cast<unsigned char *>(host)[9999] == 5);
    CHECK(cu().cuMemFreeHost(host) == CUDA_SUCCESS);
}

TEST_CASE("cuMemHostAlloc takes 0 bytes") {
    const Device device;
    int on_stack = 0;
    void *host = &on_stack;
    CHECK(cu().cuMemHostAlloc(&host, 0, 0) == CUDA_SUCCESS);
}

TEST_CASE("a range is registered once, and unregistered once") {
    const Device device;
    std::vector<unsigned char> range(1 << 20);
    CUdeviceptr mapped = 0;
    REQUIRE(cu().cuMemHostRegister(range.data(), range.size(), 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostRegister(range.data(), range.size(), 0) ==
          CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cu().cuMemHostGetDevicePointer(&mapped, range.data(), 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(range.data()) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(range.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

// As an H100 answers.
TEST_CASE("only memory of the process's own is registered, and only as it may be used") {
    const Device device;
    const auto at = [](uintptr_t address) { return reinterpret_cast<void *>(address); };
    char *const read_only =
        static_cast<char *>(mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    void *pinned = nullptr;
    REQUIRE(cu().cuMemHostAlloc(&pinned, 4096, 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostRegister(at(0x10), 4096, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostRegister(read_only, SIZE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostRegister(read_only, 8192, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostRegister(pinned, 4096, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostUnregister(pinned) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemHostRegister(read_only, 8192, CU_MEMHOSTREGISTER_READ_ONLY) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(read_only + 150) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostUnregister(read_only) == CUDA_SUCCESS);
}

TEST_CASE("a range that no process can have pinned is refused") {
    const Device device;
    std::vector<unsigned char> range(8192);
    const auto pin = [](const void *start, size_t size, unsigned flags = 0) {
        return cu().cuMemHostRegister(const_cast<void *>(start), size, flags);
    };
    const auto at = [](uintptr_t address) { return reinterpret_cast<const void *>(address); };
    CHECK(pin(nullptr, 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(range.data(), 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(at(0x10), 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(at(0x10), 16, CU_MEMHOSTREGISTER_DEVICEMAP) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(at(0xffff'8000'0000'0000), 4096) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(pin(range.data(), SIZE_MAX) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(range.data(), size_t(1) << 46) == CUDA_ERROR_OUT_OF_MEMORY);
    for (const unsigned unknown : {4u, 16u, 32u}) {
        CHECK(pin(range.data(), 4096, unknown) == CUDA_ERROR_INVALID_VALUE);
    }
    void *const pages = mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pin(pages, 8192) == CUDA_ERROR_INVALID_VALUE);
    mprotect(pages, 8192, PROT_READ);
    CHECK(pin(pages, 8192) == CUDA_ERROR_INVALID_VALUE);
    CHECK(pin(pages, 8192, CU_MEMHOSTREGISTER_READ_ONLY) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(pages) == CUDA_SUCCESS);
    munmap(pages, 8192);
    CHECK(pin(pages, 8192) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a registration ends where it begins, and allocated memory is none") {
    const Device device;
    std::vector<unsigned char> range(8192);
    unsigned char *const p = range.data();
    REQUIRE(cu().cuMemHostRegister(p + 100, 200, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemHostRegister(p + 300, 100, 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostRegister(p, 8192, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(cu().cuMemHostUnregister(p) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK(cu().cuMemHostUnregister(p + 150) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostUnregister(p + 100) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(p + 100) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK(cu().cuMemHostUnregister(p + 300) == CUDA_SUCCESS);
    void *host = nullptr;
    REQUIRE(cu().cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostUnregister(host) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemHostRegister(host, 4096, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemFreeHost(host) == CUDA_SUCCESS);
}

TEST_CASE("pinned memory tells its flags, registered or allocated, from any address in it") {
    const Device device;
    std::vector<unsigned char> range(4096);
    unsigned flags = 0;
    REQUIRE(cu().cuMemHostRegister(range.data(), 4096, CU_MEMHOSTREGISTER_PORTABLE) ==
            CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetFlags(&flags, range.data() + 5) == CUDA_SUCCESS);
    CHECK(flags == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    REQUIRE(cu().cuMemHostUnregister(range.data()) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetFlags(&flags, range.data()) == CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr managed = 0;
    REQUIRE(cu().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetFlags(&flags, reinterpret_cast<void *>(managed)) == CUDA_SUCCESS);
    CHECK(flags == CU_MEMHOSTALLOC_DEVICEMAP);
    CHECK(cu().cuMemFree(managed) == CUDA_SUCCESS);
}

TEST_CASE("what is not asked for is not told: memory info and address ranges") {
    const Device device;
    const Block block(4096);
    size_t free = 0, total = 0, size = 0;
    CHECK(cu().cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
    CHECK(cu().cuMemGetInfo(nullptr, &total) == CUDA_SUCCESS);
    CHECK(cu().cuMemGetInfo(nullptr, nullptr) == CUDA_SUCCESS);
    CHECK((free > 0 && free <= total));
    CHECK(cu().cuMemGetAddressRange(nullptr, &size, block) == CUDA_SUCCESS);
    CHECK(cu().cuMemGetAddressRange(nullptr, nullptr, 0x10) == CUDA_SUCCESS);
}

TEST_CASE("managed memory says so and is seen by both sides") {
    const Device device;
    CUdeviceptr address = 0;
    unsigned managed = 0;
    REQUIRE(cu().cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    CHECK(cu().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
          CUDA_SUCCESS);
    CHECK(managed == 1);
    CHECK(cu().cuMemsetD8(address, 9, 4096) == CUDA_SUCCESS);
    CHECK(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(*reinterpret_cast<unsigned char *>(address) == 9);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("memory of a destroyed context is gone with it") {
    const Device device;
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    unsigned type = 0;
    REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxDestroy(context) == CUDA_SUCCESS);
    CHECK(cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
          CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("each row of pitched memory starts aligned") {
    const Device device;
    CUdeviceptr address = 0, refused = 0;
    size_t pitch = 0, size = 0;
    REQUIRE(cu().cuMemAllocPitch(&address, &pitch, 1000, 7, 4) == CUDA_SUCCESS);
    CHECK(pitch >= 1000);
    CHECK(pitch % 256 == 0);
    CHECK(cu().cuMemGetAddressRange(nullptr, &size, address) == CUDA_SUCCESS);
    CHECK(size >= 7 * pitch);
    CHECK(cu().cuMemAllocPitch(&refused, &pitch, 1000, 7, 5) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemAllocPitch(&refused, &pitch, 0, 7, 4) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemFree(address) == CUDA_SUCCESS);
}

TEST_CASE("pinned memory tells the flags that it was made with, and device memory has none") {
    const Device device;
    const Block block(4096);
    void *host = nullptr;
    unsigned flags = 0;
    REQUIRE(cu().cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_WRITECOMBINED) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetFlags(&flags, host) == CUDA_SUCCESS);
    CHECK((flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0);
    CHECK(cu().cuMemFreeHost(host) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAllocHost(&host, 4096) == CUDA_SUCCESS);
    CHECK(cu().cuMemHostGetFlags(&flags, host) == CUDA_SUCCESS);
    CHECK((flags & CU_MEMHOSTALLOC_WRITECOMBINED) == 0);
    CHECK(cu().cuMemFreeHost(host) == CUDA_SUCCESS);
    const CUdeviceptr device_address = block;
    CHECK(cu().cuMemHostGetFlags(&flags, reinterpret_cast<void *>(device_address)) != CUDA_SUCCESS);
}

TEST_CASE("many attributes of a pointer are told at once") {
    const Device device;
    const Block block(1 << 20);
    CUdeviceptr start = 0, at_device = 0;
    size_t size = 0;
    unsigned type = 0, managed = 7, mapped = 0;
    int ordinal = -1;
    CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(&size);
    void *host = &size;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,   CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *where[] = {&start, &size, &type, &managed, &mapped, &ordinal, &pool, &at_device, &host};
    REQUIRE(cu().cuPointerGetAttributes(9, which, where, block + 4095) == CUDA_SUCCESS);
    CHECK(start == block);
    CHECK(size == 1 << 20);
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(managed == 0);
    CHECK(mapped == 1);
    CHECK(ordinal == 0);
    CHECK(pool == nullptr);
    CHECK(at_device == block + 4095);
    CHECK(host == nullptr); // the device's own memory has no host address
}

TEST_CASE("an address that the driver does not know is the host's, and has no range") {
    const Device device;
    int on_stack = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(&on_stack);
    CUdeviceptr start = 7, at_device = 7;
    void *host = nullptr;
    unsigned type = 7;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *where[] = {&start, &at_device, &host, &type};
    REQUIRE(cu().cuPointerGetAttributes(4, which, where, address) == CUDA_SUCCESS);
    CHECK(start == 7); // not written
    CHECK(at_device == 0);
    CHECK(host == &on_stack);
    CHECK(type == 0);
}

TEST_CASE("memory that synchronizes its operations says so, and a set of it waits") {
    PendingWork work;
    const Device device;
    const Stream stream(CU_STREAM_DEFAULT);
    const Block block(4096);
    unsigned yes = 1, synchronizes = 7;
    const auto ask = [&] {
        CHECK(cu().cuPointerGetAttribute(&synchronizes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                         block + 9) == CUDA_SUCCESS);
        return synchronizes;
    };
    CHECK(ask() == 0);
    REQUIRE(cu().cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block) ==
            CUDA_SUCCESS);
    CHECK(ask() == 1);
    CHECK(cu().cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block) !=
          CUDA_SUCCESS);
    int on_stack = 0;
    CHECK(cu().cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                     reinterpret_cast<CUdeviceptr>(&on_stack)) != CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8(block, 4, 4096) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(CU_STREAM_LEGACY) == CUDA_SUCCESS);
}

TEST_CASE("a range of whole pages can be had as a descriptor") {
    const Device device;
    int supported = 0, descriptor = -1;
    REQUIRE(cu().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) ==
            CUDA_SUCCESS);
    if (!supported || !cu().cuMemGetHandleForAddressRange) {
        WARN("skipped: no dma-buf here");
        return;
    }
    const Block block(2 << 20);
    const auto ask = [&](CUdeviceptr address, size_t size) {
        return cu().cuMemGetHandleForAddressRange(&descriptor, address, size,
                                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    };
    CHECK(ask(block, 4096 + 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(block + 512, 4096) == CUDA_ERROR_INVALID_VALUE);
    CHECK(ask(block, 4 << 20) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemsetD8(block + 8192, 9, 4096) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    REQUIRE(ask(block + 8192, 4096) == CUDA_SUCCESS);
    CHECK((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    unsigned char byte = 0;
    if (cu().simulated()) { // a real device's memory cannot be read
        CHECK(read(descriptor, &byte, 1) == 1);
        CHECK(byte == 9);
    }
    CHECK(close(descriptor) == 0);
}
