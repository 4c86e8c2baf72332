#include "call.h"
#include "race.h"
#include "share.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {
namespace {

// Maps a part of a file at the addresses, or nothing.
bool show(CUdeviceptr start, uint64_t size, const Physical *physical) {
    const bool visible = physical && sim().options.host_access;
    const int flags = visible ? MAP_SHARED | MAP_NORESERVE | MAP_FIXED
                              : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return syscall(SYS_mmap, start, size, visible ? PROT_READ | PROT_WRITE : PROT_NONE, flags,
                   visible ? physical->store->fd : -1, visible ? physical->offset : 0) != -1;
}

bool is_reserved(CUdeviceptr start, uint64_t size) {
    const auto &reservations = sim().reservations;
    auto found = reservations.upper_bound(start);
    if (found == reservations.begin()) {
        return false;
    }
    --found;
    return start + size <= found->first + found->second && start + size >= start;
}

// The mappings that cover the range; none if there is a gap.
std::vector<Region *> mappings_of(CUdeviceptr start, uint64_t size) {
    std::vector<Region *> mappings;
    for (CUdeviceptr at = start; at < start + size; at = mappings.back()->end()) {
        Region *region = sim().regions.around(at);
        if (!region || region->kind != Kind::mapped) {
            return {};
        }
        mappings.push_back(region);
    }
    return mappings;
}

// The one block, or the first of the mappings, that other hardware may reach; NULL: no such memory.
const Region *exportable(CUdeviceptr start, uint64_t size) {
    const Region *region = sim().regions.around(start);
    if (region && region->kind == Kind::device) {
        return size <= region->end() - start ? region : nullptr;
    }
    const std::vector<Region *> mappings = mappings_of(start, size);
    const bool one_device = std::all_of(mappings.begin(), mappings.end(), [&](const Region *each) {
        return each->device == mappings.front()->device;
    });
    return mappings.empty() || !one_device || mappings.front()->device->of_host ? nullptr
                                                                                : mappings.front();
}

bool are_whole(const std::vector<Region *> &mappings, CUdeviceptr start, uint64_t size) {
    return mappings.front()->start == start && mappings.back()->end() == start + size;
}

// Driver 580 may map a handle no more, and answer CUDA_ERROR_UNKNOWN, once its oldest mapping has
// ended while another one had access and a third had none yet. This driver never maps it again.
void forget_mapping(Physical &physical, CUdeviceptr start) {
    std::vector<CUdeviceptr> &all = physical.mapped_at;
    const bool was_oldest = all.front() == start;
    all.erase(std::find(all.begin(), all.end(), start));
    const auto has_access = [](CUdeviceptr address) {
        const Region &region = *sim().regions.at(address);
        return region.access != 0 || region.host_access;
    };
    physical.cannot_be_mapped |= was_oldest && std::any_of(all.begin(), all.end(), has_access) &&
                                 !std::all_of(all.begin(), all.end(), has_access);
}

void unmap(Region &region) {
    const CUdeviceptr start = region.start;
    Physical &physical = *region.physical;
    const auto unseen = std::find_if(region.uses.begin(), region.uses.end(), [](const Access &use) {
        return !sim().host.has_seen(use.line, use.time);
    });
    if (unseen != region.uses.end()) {
        report_unseen(*unseen, start, region.size);
    }
    show(start, region.size, nullptr);
    forget_mapping(physical, start);
    sim().regions.remove(start, this_thread.call);
    end_mapping(physical);
}

} // namespace

void api::mem_address_reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr,
                              unsigned long long flags) {
    const uint64_t align = std::max<uint64_t>(alignment, Device::granule);
    expect(ptr && flags == 0 && size != 0 && size % Device::granule == 0 &&
           (alignment & (alignment - 1)) == 0);
    const long found = syscall(SYS_mmap, nullptr, size + align, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(found != -1, CUDA_ERROR_OUT_OF_MEMORY);
    const auto first = static_cast<CUdeviceptr>(found);
    const CUdeviceptr start = (first + align - 1) / align * align;
    if (start > first) {
        munmap(reinterpret_cast<void *>(first), start - first);
    }
    munmap(reinterpret_cast<void *>(start + size), first + align - start);
    sim().reservations[start] = size;
    *ptr = start;
}

void api::mem_address_free(CUdeviceptr ptr, size_t size) {
    const auto found = sim().reservations.find(ptr);
    expect(found != sim().reservations.end() && found->second == size);
    if (const Region *mapped = sim().regions.first_in(ptr, size)) {
        refuse(misuse("%s, still in the range of 0x%llx that is to be freed",
                      sim().regions.describe(mapped->start).c_str(), ptr));
    }
    munmap(reinterpret_cast<void *>(ptr), size);
    sim().reservations.erase(found);
}

void api::mem_map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    expect(!sim().multicasts.find(handle), CUDA_ERROR_NOT_SUPPORTED);
    Physical *const physical = &find_physical(handle);
    expect(flags == 0 && size != 0 && (ptr | size | offset) % Device::granule == 0 &&
           size <= physical->size && offset <= physical->size - size && is_reserved(ptr, size));
    expect(size == physical->size, CUDA_ERROR_NOT_SUPPORTED); // as on an H100: no parts of handles
    expect(!sim().regions.first_in(ptr, size), CUDA_ERROR_ALREADY_MAPPED);
    expect(!physical->cannot_be_mapped, CUDA_ERROR_UNKNOWN);
    expect(show(ptr, size, physical), CUDA_ERROR_OUT_OF_MEMORY);
    Region region;
    region.start = ptr;
    region.size = size;
    region.kind = Kind::mapped;
    region.device = physical->device;
    region.store = physical->store;
    region.offset = physical->offset;
    region.physical = physical;
    sim().regions.add(region);
    ++physical->mappings;
    physical->mapped_at.push_back(ptr);
}

// Does not wait for work: the caller must know that no work uses the range. Uses of the memory at
// another address go on.
void api::mem_unmap(CUdeviceptr ptr, size_t size) {
    const Region *first = sim().regions.first_in(ptr, size);
    expect(size != 0 && is_reserved(ptr, size) && first);
    const Region *last = sim().regions.around(ptr + size - 1);
    if (first->start < ptr || (last && last->end() > ptr + size)) {
        refuse(misuse("%s; mappings go as a whole, and [0x%llx, 0x%llx) cuts one",
                      sim().regions.describe(ptr).c_str(), ptr,
                      static_cast<unsigned long long>(ptr + size)));
    }
    while (Region *region = sim().regions.first_in(ptr, size)) {
        unmap(*region);
    }
}

void api::mem_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    const std::vector<Region *> mappings = mappings_of(ptr, size);
    expect(desc && !mappings.empty() && are_whole(mappings, ptr, size));
    const bool on_host = std::all_of(mappings.begin(), mappings.end(),
                                     [](const Region *each) { return each->device->of_host; });
    for (size_t i = 0; i < count; ++i) {
        if (desc[i].location.type == location_host || desc[i].location.type == location_host_numa) {
            expect(on_host, CUDA_ERROR_NOT_SUPPORTED);
            for (Region *region : mappings) {
                region->host_access = desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
            }
            continue;
        }
        const Device *const device = device_at(desc[i].location.id);
        expect(desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && device);
        const uint64_t bit = uint64_t(1) << device->ordinal;
        for (Region *region : mappings) {
            region->access = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? region->access & ~bit
                                                                            : region->access | bit;
        }
    }
}

void api::mem_get_access(unsigned long long *flags, const CUmemLocation *location,
                         CUdeviceptr ptr) {
    const Region *region = sim().regions.around(ptr);
    expect(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && region &&
           region->kind == Kind::mapped);
    *flags = region->access >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Instead of a dma-buf the program gets the memory's file, which stands at the range's first byte.
void api::mem_get_handle_for_address_range(void *handle, CUdeviceptr dptr, size_t size,
                                           CUmemRangeHandleType handle_type,
                                           unsigned long long flags) {
    constexpr uint64_t page = 4096;
    const Region *region = exportable(dptr, size);
    expect(handle && region && size != 0 && dptr % page == 0 && size % page == 0 &&
           handle_type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
    expect(flags == 0, CUDA_ERROR_NOT_SUPPORTED); // there is no PCIe to map the memory by
    const int descriptor = make_view(*region->store, region->offset + (dptr - region->start));
    expect(descriptor >= 0, CUDA_ERROR_UNKNOWN);
    std::memcpy(handle, &descriptor, sizeof descriptor);
}

} // namespace simcuda
