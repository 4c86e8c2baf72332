// Behaviour: CUDA's promises about physical memory and mappings: the same on real hardware and
// simulated.
#include "cuda_driver.h"
#include "pending_work.h"

#include <unistd.h>

namespace {

CUmemAllocationProp properties(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemAllocationProp found = {};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    found.location.id = 0;
    found.requestedHandleTypes = types;
    return found;
}

size_t granularity() {
    size_t size = 0;
    const CUmemAllocationProp wanted = properties();
    REQUIRE(cu().cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
            CUDA_SUCCESS);
    return size;
}

CUmemGenericAllocationHandle create(size_t size,
                                    CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp wanted = properties(types);
    REQUIRE(cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_SUCCESS);
    return handle;
}

CUdeviceptr reserve(size_t size) {
    CUdeviceptr address = 0;
    REQUIRE(cu().cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
    return address;
}

void map(CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle) {
    CUmemAccessDesc access = {};
    access.location = properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    REQUIRE(cu().cuMemMap(address, size, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemSetAccess(address, size, &access, 1) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("one physical handle is seen at two addresses") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr range = reserve(2 * size);
    map(range, size, handle);
    map(range + size, size, handle);
    REQUIRE(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8(range + 5, 42, 1) == CUDA_SUCCESS);
    CHECK(byte_at(range + size + 5) == 42);
    CHECK(cu().cuMemUnmap(range, 2 * size) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, 2 * size) == CUDA_SUCCESS);
}

TEST_CASE(
    "a handle whose oldest mapping ends before the youngest one has access may be mapped no more") {
    const Device device;
    const size_t size = granularity();
    CUmemAccessDesc access = {};
    access.location = properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (const bool has_third : {false, true}) {
        const CUmemGenericAllocationHandle handle = create(size);
        const CUdeviceptr first = reserve(3 * size), second = first + size, third = second + size;
        map(first, size, handle);
        if (has_third) {
            map(third, size, handle);
        }
        REQUIRE(cu().cuMemMap(second, size, 0, handle, 0) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemUnmap(first, size) == CUDA_SUCCESS);
        CHECK(cu().cuMemSetAccess(second, size, &access, 1) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemsetD8(second, 42, size) == CUDA_SUCCESS);
        CHECK(byte_at(second) == 42);
        const CUresult again = cu().cuMemMap(first, size, 0, handle, 0);
        // Driver 580 has refused under load, by a rule that is not known, and served this sequence
        // on an H200. The simulated driver always refuses.
        if (has_third && (cu().simulated() || again != CUDA_SUCCESS)) {
            CHECK(again == CUDA_ERROR_UNKNOWN);
        } else {
            CHECK(again == CUDA_SUCCESS);
        }
        CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
        CHECK(cu().cuMemUnmap(first, 3 * size) == CUDA_SUCCESS);
        CHECK(cu().cuMemAddressFree(first, 3 * size) == CUDA_SUCCESS);
    }
}

TEST_CASE(
    "an address of a handle is created and deleted again and again beside work on another one") {
    PendingWork work;
    const Device device;
    const Stream stream;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr first = reserve(size), second = reserve(size);
    map(first, size, handle);
    REQUIRE(cu().cuMemsetD8Async(first, 3, size, stream) == CUDA_SUCCESS);
    map(second, size, handle);
    REQUIRE(cu().cuMemsetD8Async(second, 4, 1, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(first) == 4);
    CHECK(byte_at(second + 1) == 3);
    work.begin(stream);
    REQUIRE(cu().cuMemsetD8Async(first, 5, size, stream) == CUDA_SUCCESS);
    CHECK(cu().cuMemUnmap(second, size) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    work.end();
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(byte_at(first) == 5);
    CHECK(cu().cuMemUnmap(first, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(first, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(second, size) == CUDA_SUCCESS);
}

TEST_CASE("work runs on from one mapping into the next") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle first = create(size), second = create(size);
    const CUdeviceptr range = reserve(2 * size);
    map(range, size, second);
    map(range + size, size, first);
    REQUIRE(cu().cuMemsetD8(range, 7, 2 * size) == CUDA_SUCCESS);
    CHECK(byte_at(range) == 7);
    CHECK(byte_at(range + 2 * size - 1) == 7);
    CHECK(cu().cuMemUnmap(range, 2 * size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(first) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(second) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, 2 * size) == CUDA_SUCCESS);
}

TEST_CASE("sizes must be whole granules, and addresses reserved and free") {
    const Device device;
    const size_t size = granularity();
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp wanted = properties();
    CHECK(cu().cuMemCreate(&handle, size + 1, &wanted, 0) == CUDA_ERROR_INVALID_VALUE);
    handle = create(size);
    const CUdeviceptr range = reserve(size);
    map(range, size, handle);
    CHECK(cu().cuMemMap(range, size, 0, handle, 0) != CUDA_SUCCESS);
    CHECK(cu().cuMemMap(range + 1024 * size, size, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemUnmap(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, size) == CUDA_SUCCESS);
}

TEST_CASE("a handle is mapped as a whole") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(4 * size);
    const CUdeviceptr range = reserve(8 * size);
    CHECK(cu().cuMemMap(range, size, 0, handle, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cu().cuMemMap(range + size, size, size, handle, 0) == CUDA_ERROR_NOT_SUPPORTED);
    map(range + size, 4 * size, handle);
    CHECK(cu().cuMemUnmap(range + size, 4 * size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, 8 * size) == CUDA_SUCCESS);
}

TEST_CASE("a mapping is no memory for legacy IPC") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr range = reserve(size);
    CUipcMemHandle exported;
    map(range, size, handle);
    CHECK(cu().cuIpcGetMemHandle(&exported, range) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemUnmap(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, size) == CUDA_SUCCESS);
}

TEST_CASE("operations on a mapping cannot be set to synchronize") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr range = reserve(size);
    unsigned yes = 1;
    map(range, size, handle);
    REQUIRE(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, range) ==
          CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cu().cuMemUnmap(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, size) == CUDA_SUCCESS);
}

TEST_CASE("the handle behind a mapping can be had again") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr range = reserve(size);
    CUmemGenericAllocationHandle again = 0;
    map(range, size, handle);
    CHECK(cu().cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(range)) ==
          CUDA_SUCCESS);
    CHECK(again == handle);
    CHECK(cu().cuMemRelease(again) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemUnmap(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, size) == CUDA_SUCCESS);
}

TEST_CASE("only memory that was created for it is exported by descriptor") {
    const Device device;
    const size_t size = granularity();
    const CUmemGenericAllocationHandle plain = create(size);
    const CUmemGenericAllocationHandle shared =
        create(size, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int descriptor = -1;
    CUmemGenericAllocationHandle imported = 0;
    CHECK(cu().cuMemExportToShareableHandle(&descriptor, plain,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().cuMemExportToShareableHandle(
                &descriptor, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    CHECK(cu().cuMemImportFromShareableHandle(
              &imported, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)),
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
    CHECK(close(descriptor) == 0);
    CHECK(cu().cuMemRelease(imported) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(shared) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(plain) == CUDA_SUCCESS);
}

TEST_CASE("mapping works under a global capture") {
    const Device device;
    const Stream stream;
    const size_t size = granularity();
    CUgraph graph = nullptr;
    REQUIRE(cu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    const CUmemGenericAllocationHandle handle = create(size);
    const CUdeviceptr range = reserve(size);
    map(range, size, handle);
    CHECK(cu().cuMemUnmap(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, size) == CUDA_SUCCESS);
    CHECK(cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

namespace {

// CU_MEM_LOCATION_TYPE_HOST_NUMA and its attributes, which older headers lack.
constexpr auto host_numa = CUmemLocationType(3), host_numa_current = CUmemLocationType(4);
constexpr auto maps_host_numa = CUdevice_attribute(141), numa_id = CUdevice_attribute(134);

CUmemAllocationProp host_properties() {
    int node = 0;
    cu().cuDeviceGetAttribute(&node, numa_id, 0);
    CUmemAllocationProp found = properties();
    found.location = {host_numa, node < 0 ? 0 : node};
    return found;
}

// A driver before 12.9 does not know the attribute.
bool maps_host_memory() {
    int served = 0;
    return cu().cuDeviceGetAttribute(&served, maps_host_numa, 0) != CUDA_SUCCESS || served != 0;
}

} // namespace

TEST_CASE("host memory behind reserved addresses is used as device memory is, and takes none") {
    const Device device;
    if (!maps_host_memory()) {
        return;
    }
    const CUmemAllocationProp wanted = host_properties();
    size_t size = 0, free_before = 0, free_after = 0, total = 0;
    REQUIRE(cu().cuMemGetAllocationGranularity(&size, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
            CUDA_SUCCESS);
    CHECK(granularity() % size == 0);
    size = granularity();
    REQUIRE(cu().cuMemGetInfo(&free_before, &total) == CUDA_SUCCESS);
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemGetInfo(&free_after, &total) == CUDA_SUCCESS);
    CHECK(free_before - free_after < size);
    const CUdeviceptr range = reserve(2 * size);
    map(range, size, handle);
    CUmemAccessDesc access = {};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cu().cuMemSetAccess(range, size, &access, 1) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8(range, 42, size) == CUDA_SUCCESS);
    CHECK(byte_at(range + size - 1) == 42);
    CUmemGenericAllocationHandle of_device = create(size);
    map(range + size, size, of_device);
    CHECK(cu().cuMemSetAccess(range + size, size, &access, 1) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cu().cuMemUnmap(range, 2 * size) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cu().cuMemRelease(of_device) == CUDA_SUCCESS);
    CHECK(cu().cuMemAddressFree(range, 2 * size) == CUDA_SUCCESS);
}

TEST_CASE("a memset across two mappings of host memory is refused where the host has access") {
    const Device device;
    if (!maps_host_memory()) {
        return;
    }
    const CUmemAllocationProp wanted = host_properties();
    const size_t size = granularity();
    const CUdeviceptr range = reserve(2 * size);
    CUmemGenericAllocationHandle handles[2] = {};
    for (int i = 0; i < 2; i++) {
        REQUIRE(cu().cuMemCreate(&handles[i], size, &wanted, 0) == CUDA_SUCCESS);
        map(range + i * size, size, handles[i]);
    }
    const CUmemAccessDesc of_device = {properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAccessDesc of_host = {wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(cu().cuMemSetAccess(range, 2 * size, &of_device, 1) == CUDA_SUCCESS);
    CHECK(cu().cuMemsetD8(range, 1, 2 * size) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemSetAccess(range, 2 * size, &of_host, 1) == CUDA_SUCCESS);
    CHECK(cu().cuMemsetD8(range, 1, 2 * size) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cu().cuMemsetD8(range, 1, size) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(cu().cuMemUnmap(range, 2 * size) == CUDA_SUCCESS);
    for (const CUmemGenericAllocationHandle handle : handles) {
        CHECK(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    }
    CHECK(cu().cuMemAddressFree(range, 2 * size) == CUDA_SUCCESS);
}

TEST_CASE("host memory is created for a node that the caller names") {
    const Device device;
    const size_t size = granularity();
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp wanted = host_properties();
    wanted.location.type = host_numa_current;
    CHECK(cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_ERROR_INVALID_VALUE);
    wanted.location = {host_numa, 1 << 20};
    CHECK(cu().cuMemCreate(&handle, size, &wanted, 0) != CUDA_SUCCESS);
}
