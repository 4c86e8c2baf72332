#include "cases.h"
#include "objects.h"

#include <cstdlib>
#include <memory>

namespace {

CUdeviceptr device_address(void *host) {
    CUdeviceptr address = 0;
    NEED(cu.cuMemHostGetDevicePointer(&address, host, 0));
    return address;
}

unsigned type_of(CUdeviceptr address) {
    unsigned type = 0;
    NEED(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    return type;
}

bool device_writes(void *host, size_t size, unsigned char value) {
    const Stream stream;
    NEED(cu.cuMemsetD8Async(device_address(host), value, size, stream));
    NEED(cu.cuStreamSynchronize(stream));
    const auto *bytes = static_cast<unsigned char *>(host);
    return bytes[0] == value && bytes[size / 2] == value && bytes[size - 1] == value;
}

void pinned(void *host, size_t size, unsigned asked, const char *name) {
    unsigned flags = 0;
    NEED(cu.cuMemHostGetFlags(&flags, host));
    fact(flags == (asked | CU_MEMHOSTALLOC_DEVICEMAP),
         "%s, %zu bytes: the flags asked for, and mapped", name, size);
    unsigned within = 0;
    NEED(cu.cuMemHostGetFlags(&within, static_cast<char *>(host) + size - 1));
    fact(within == flags, "%s, %zu bytes: the last byte has the same", name, size);
    fact(type_of(device_address(host)) == CU_MEMORYTYPE_HOST, "%s, %zu bytes: is host memory", name,
         size);
    fact(device_address(static_cast<char *>(host) + size / 2) == device_address(host) + size / 2,
         "%s, %zu bytes: the device's address of the middle is the middle", name, size);
    for (const size_t offset : {size_t(0), size / 2, size - 1}) {
        CUdeviceptr base = 0, start = 0;
        size_t found = 0, extent = 0;
        const CUdeviceptr within = device_address(host) + offset;
        result(cu.cuMemGetAddressRange(&base, &found, within), CUDA_SUCCESS,
               "%s, %zu bytes: range at %zu", name, size, offset);
        fact(base == device_address(host) && found >= size && found - size < page,
             "%s, %zu bytes: the block itself", name, size);
        NEED(cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, within));
        NEED(cu.cuPointerGetAttribute(&extent, CU_POINTER_ATTRIBUTE_RANGE_SIZE, within));
        fact(start == base && extent == found, "%s, %zu bytes: so its attributes say", name, size);
    }
    fact(device_writes(host, size, 81), "%s, %zu bytes: the host reads what the device wrote", name,
         size);
    result(cu.cuMemFreeHost(host), CUDA_SUCCESS, "%s, %zu bytes: free", name, size);
    result(cu.cuMemHostGetFlags(&flags, host), CUDA_ERROR_INVALID_VALUE,
           "%s, %zu bytes: flags after the free", name, size);
}

} // namespace

void host_case() {
    const Primary primary;
    const struct {
        unsigned flags;
        const char *name;
    } kinds[] = {
        {0, "no flag"},
        {CU_MEMHOSTALLOC_PORTABLE, "portable"},
        {CU_MEMHOSTALLOC_DEVICEMAP, "mapped"},
        {CU_MEMHOSTALLOC_WRITECOMBINED, "write-combined"},
        {CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, "portable and mapped"},
        {CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED, "portable and write-combined"}};
    void *host = nullptr;
    for (const auto &[flags, name] : kinds) {
        for (const size_t size : {size_t(100), page, 3 * mib}) {
            NEED(cu.cuMemHostAlloc(&host, size, flags));
            pinned(host, size, flags, name);
        }
    }
    NEED(cu.cuMemAllocHost(&host, mib));
    pinned(host, mib, 0, "cuMemAllocHost");
    int on_stack = 0;
    host = &on_stack;
    result(cu.cuMemHostAlloc(&host, 0, 0), CUDA_SUCCESS, "0 bytes");
    told(host == nullptr     ? "none"
         : host == &on_stack ? "not written"
                             : "some",
         "0 bytes: the address");
    result(cu.cuMemHostAlloc(&host, page, 0x80), CUDA_ERROR_INVALID_VALUE, "an unknown flag");
}

namespace {

void registered(char *range, unsigned flags, const char *name) {
    result(cu.cuMemHostRegister(range, mib, flags), CUDA_SUCCESS, "%s", name);
    result(cu.cuMemHostRegister(range, mib, flags), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
           "%s, the second time", name);
    result(cu.cuMemHostRegister(range + page, page, flags),
           CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "%s, a part of it", name);
    fact(type_of(device_address(range)) == CU_MEMORYTYPE_HOST, "%s: is host memory", name);
    fact(device_writes(range, mib, 91), "%s: the host reads what the device wrote", name);
    const unsigned expected = (flags & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
    for (const size_t offset : {size_t(0), mib / 2, mib - 1}) {
        unsigned told = 0;
        NEED(cu.cuMemHostGetFlags(&told, range + offset));
        fact(told == expected, "%s: the flags at %zu", name, offset);
    }
    result(cu.cuMemHostUnregister(range), CUDA_SUCCESS, "%s: unregister", name);
    result(cu.cuMemHostUnregister(range), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
           "%s: unregister, the second time", name);
    fact(!is_known(reinterpret_cast<CUdeviceptr>(range)), "%s: is unknown again", name);
    fact(range[mib - 1] == 91, "%s: keeps its bytes", name);
}

} // namespace

void register_case() {
    const Primary primary;
    const std::unique_ptr<char, decltype(&std::free)> range(
        static_cast<char *>(std::aligned_alloc(page, mib)), &std::free);
    registered(range.get(), 0, "no flag");
    registered(range.get(), CU_MEMHOSTREGISTER_PORTABLE, "portable");
    registered(range.get(), CU_MEMHOSTREGISTER_DEVICEMAP, "mapped");
    registered(range.get(), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY,
               "portable and read-only");
    result(cu.cuMemHostRegister(range.get(), 0, 0), CUDA_ERROR_INVALID_VALUE, "0 bytes");
    result(cu.cuMemHostUnregister(range.get()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
           "unregister what never was");
}
