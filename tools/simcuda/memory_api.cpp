#include "call.h"
#include "capture.h"
#include "graph_memory.h"
#include "simulator.h"

#include <cstdio>
#include <unistd.h>

namespace simcuda {
namespace {

constexpr uint64_t page = 4096;

// Device memory of the current context.
void allocate(CUdeviceptr *ret_address, uint64_t size) {
    Context &context = current_root();
    check_unsafe_call();
    expect(ret_address && size != 0);
    Device &device = *context.device;
    const auto offset = device.take(size);
    expect(offset.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
    Region region;
    region.offset = *offset + Device::shift(size);
    region.start = device.window + region.offset;
    region.size = size;
    region.device = &device;
    region.context = &context;
    region.store = &device.store;
    *ret_address = sim().regions.add(region).start;
}

// Whether the process has all of a range mapped, and may write to it if `writable`.
bool has_pages(uint64_t start, uint64_t size, bool writable) {
    FILE *const maps = size <= UINT64_MAX - start ? fopen("/proc/self/maps", "re") : nullptr;
    if (!maps) {
        return size <= UINT64_MAX - start; // without /proc
    }
    unsigned long from = 0, to = 0;
    char access[5] = "";
    uint64_t at = start;
    while (at < start + size && fscanf(maps, "%lx-%lx %4s%*[^\n]", &from, &to, access) == 3) {
        if (to > at && (from > at || (writable && access[1] != 'w'))) {
            break;
        }
        at = to > at ? to : at;
    }
    fclose(maps);
    return at >= start + size;
}

Region host_region(Kind kind, Context &context, CUdeviceptr start, uint64_t size, unsigned flags) {
    Region region;
    region.start = start;
    region.size = size;
    region.kind = kind;
    region.device = context.device;
    region.context = &context;
    region.store = &sim().host_memory;
    region.offset = start;
    region.flags = flags;
    return region;
}

// Host memory that devices can use, at the same address.
CUdeviceptr allocate_host(Kind kind, uint64_t bytes, unsigned flags) {
    Context &context = current_root();
    check_unsafe_call();
    expect(bytes != 0);
    const uint64_t size = (bytes + page - 1) / page * page;
    void *memory = size < bytes ? nullptr : map_host(size);
    expect(memory, CUDA_ERROR_OUT_OF_MEMORY);
    const auto start = reinterpret_cast<CUdeviceptr>(memory);
    sim().regions.add(host_region(kind, context, start, size, flags));
    sim().host_totals.add(size);
    return start;
}

// Pinned memory and memory pools have blocks of 0 bytes, without an address.
CUdeviceptr allocate_nothing() {
    current_root();
    check_unsafe_call();
    return 0;
}

// The driver's answer to a range that it cannot pin.
void check_range(CUdeviceptr start, size_t size, unsigned flags) {
    constexpr unsigned known =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    expect(start != 0 && size != 0 && start + size >= start && (flags & ~known) == 0);
    expect(start >> 63 == 0, CUDA_ERROR_NOT_SUPPORTED); // the kernel's addresses
    expect(size / page <= static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)), CUDA_ERROR_OUT_OF_MEMORY);
    expect(has_pages(start, size, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)));
}

// Waits for the work of the region's context, as long as needed. Then frees the region, unless
// another thread has freed it meanwhile.
void wait_and_free(CUdeviceptr start, uint64_t id) {
    const Region *region = sim().regions.at(start);
    if (region->context) {
        wait_for(*region->context);
    }
    region = sim().regions.at(start);
    if (!region || region->id != id) {
        refuse(misuse("%s while this call was freeing it", sim().regions.describe(start).c_str()));
    }
    free_region(start);
}

// As for memory of a pool, the uses must be over.
void free_of_graph(CUdeviceptr start) {
    Region &region = *sim().regions.at(start);
    if (!region.live) {
        refuse(misuse("%s, which a graph has and no launch has left to the program",
                      sim().regions.describe(start).c_str()));
    }
    retire_bytes(*region.store, region.offset, region.size, start);
    free_graph_memory(region, nullptr);
}

} // namespace

// The first versions have addresses of 32 bits and serve contexts made before CUDA 3.2. Contexts
// here are newer, and the driver does not mix the two.
#define OF_32_BITS(function, ...)                                                                  \
    void api::function(__VA_ARGS__) {                                                              \
        refuse(CUDA_ERROR_INVALID_CONTEXT);                                                        \
    }
OF_32_BITS(mem_get_info_v1, unsigned int *, unsigned int *)
OF_32_BITS(mem_alloc_v1, unsigned int *, unsigned int)
OF_32_BITS(mem_alloc_pitch_v1, unsigned int *, unsigned int *, unsigned int, unsigned int,
           unsigned int)
OF_32_BITS(mem_free_v1, unsigned int)
OF_32_BITS(mem_get_address_range_v1, unsigned int *, unsigned int *, unsigned int)
OF_32_BITS(mem_alloc_host_v1, void **, unsigned int)
OF_32_BITS(mem_host_get_device_pointer_v1, unsigned int *, void *, unsigned int)
#undef OF_32_BITS

void api::mem_get_info(size_t *free, size_t *total) {
    const Device &device = *current_root().device;
    collect_unheld();
    if (free) {
        *free = device.capacity - device.used;
    }
    if (total) {
        *total = device.capacity;
    }
}

void api::mem_alloc(CUdeviceptr *dptr, size_t bytesize) {
    allocate(dptr, bytesize);
}

void api::mem_alloc_pitch(CUdeviceptr *dptr, size_t *p_pitch, size_t width_in_bytes, size_t height,
                          unsigned int element_size_bytes) {
    constexpr size_t pitch = 512;
    expect(p_pitch &&
           (element_size_bytes == 4 || element_size_bytes == 8 || element_size_bytes == 16));
    const size_t row = (width_in_bytes + pitch - 1) / pitch * pitch;
    allocate(dptr, row * height);
    *p_pitch = row;
}

void api::mem_free(CUdeviceptr dptr) {
    if (dptr == 0) {
        return;
    }
    check_unsafe_call();
    const Region *region = sim().regions.at(dptr);
    if (!region || region->on_host() || region->kind == Kind::mapped ||
        (region->kind == Kind::imported && !region->pool)) {
        refuse(misuse("%s, which is not what cuMemAlloc, cuMemAllocAsync or cuMemAllocManaged gave",
                      sim().regions.describe(dptr).c_str()));
    }
    if (region->pool) {
        free_region(dptr); // such memory goes back without waiting
    } else if (region->kind == Kind::graph) {
        free_of_graph(dptr);
    } else {
        wait_and_free(dptr, region->id);
    }
}

void api::mem_get_address_range(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    const Region *region = sim().regions.around(dptr);
    expect(region || (!pbase && !psize), CUDA_ERROR_NOT_FOUND); // as driver 580 does
    if (pbase) {
        *pbase = region->start;
    }
    if (psize) {
        *psize = region->size;
    }
}

void api::mem_host_alloc(void **pp, size_t bytesize, unsigned int flags) {
    constexpr unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    expect(pp && !(flags & ~known));
    *pp = reinterpret_cast<void *>(bytesize == 0 ? allocate_nothing()
                                                 : allocate_host(Kind::host, bytesize, flags));
}

void api::mem_alloc_host(void **pp, size_t bytesize) {
    mem_host_alloc(pp, bytesize, 0);
}

void api::mem_free_host(void *p) {
    check_unsafe_call();
    if (!p) {
        return;
    }
    const auto start = reinterpret_cast<CUdeviceptr>(p);
    const Region *region = sim().regions.at(start);
    if (!region || region->kind != Kind::host) {
        refuse(misuse("%s, which is not what cuMemHostAlloc or cuMemAllocHost gave",
                      sim().regions.describe(start).c_str()));
    }
    wait_and_free(start, region->id);
}

void api::mem_host_get_device_pointer(CUdeviceptr *pdptr, void *p, unsigned int flags) {
    const auto address = reinterpret_cast<CUdeviceptr>(p);
    const Region *region = sim().regions.around(address);
    expect(pdptr && flags == 0 && region && region->on_host() && sim().options.mapping);
    *pdptr = address;
}

// With unified addresses all host memory is mapped. The flags do not say that memory is read-only.
// For managed memory they have DEVICEMAP alone.
void api::mem_host_get_flags(unsigned int *p_flags, void *p) {
    const Region *region = sim().regions.around(reinterpret_cast<CUdeviceptr>(p));
    expect(p_flags && region && (region->on_host() || region->kind == Kind::managed));
    const unsigned flags = region->kind == Kind::host ? region->flags
                           : region->kind == Kind::registered
                               ? region->flags & CU_MEMHOSTREGISTER_PORTABLE
                               : 0;
    *p_flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
}

void api::mem_host_register(void *p, size_t bytesize, unsigned int flags) {
    Context &context = current_root();
    const auto start = reinterpret_cast<CUdeviceptr>(p);
    check_unsafe_call();
    check_range(start, bytesize, flags);
    if (const Region *const other = sim().regions.first_in(start, bytesize)) {
        refuse(other->kind == Kind::registered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                               : CUDA_ERROR_INVALID_VALUE);
    }
    sim().regions.add(host_region(Kind::registered, context, start, bytesize, flags));
    sim().host_totals.add(bytesize);
}

void api::mem_host_unregister(void *p) {
    const auto start = reinterpret_cast<CUdeviceptr>(p);
    check_unsafe_call();
    expect(p);
    const Region *region = sim().regions.at(start);
    if (!region || region->kind != Kind::registered) {
        refuse(sim().regions.around(start) ? CUDA_ERROR_INVALID_VALUE
                                           : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    wait_and_free(start, region->id);
}

void api::mem_alloc_managed(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    expect(dptr && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    *dptr = allocate_host(Kind::managed, bytesize, flags);
}

} // namespace simcuda
