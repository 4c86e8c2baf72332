#include "call.h"
#include "share.h"
#include "simulator.h"

#include <cstring>

namespace simcuda {
namespace {

constexpr unsigned fabric = 8; // CU_MEM_HANDLE_TYPE_FABRIC, which older headers lack

// The host has one NUMA node.
bool is_place(const CUmemLocation &location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_at(location.id) != nullptr
           : location.type == location_host_numa        ? location.id == 0
                                                        : location.type == location_host;
}

CUresult check(const CUmemAllocationProp *properties) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        !is_place(properties->location)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto types = static_cast<unsigned>(properties->requestedHandleTypes);
    if (types != 0 && properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return properties->location.type == location_host ? CUDA_ERROR_INVALID_VALUE
                                                          : CUDA_ERROR_NOT_SUPPORTED;
    }
    return types & fabric                                                ? CUDA_ERROR_NOT_PERMITTED
           : types & ~unsigned(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ? CUDA_ERROR_NOT_SUPPORTED
                                                                         : CUDA_SUCCESS;
}

void add_handle(Physical &physical) {
    if (physical.references++ == 0) {
        sim().left_to_descriptors.erase(&physical);
        physical.handle = sim().physicals.insert(&physical);
    }
}

void give_back(Physical *physical) {
    physical->store->shadow.clear(physical->offset, physical->size);
    if (physical->imported) {
        release_ticket(*physical->store, physical->ticket);
    } else {
        physical->device->give(physical->offset, physical->size);
        sim().exported.erase(physical->id);
        sim().left_to_descriptors.erase(physical);
    }
    delete physical;
}

// Whether another process has the memory, or a descriptor of it.
bool is_exported(const Physical &physical) {
    return physical.ticket != 0 && !physical.imported && is_held(*physical.store, physical.ticket);
}

void give_back_unused(Physical *physical) {
    if (physical->references > 0 || physical->mappings > 0) {
        return;
    }
    if (is_exported(*physical)) {
        sim().left_to_descriptors.insert(physical);
    } else {
        give_back(physical);
    }
}

Physical *find_by_id(uint64_t id) {
    const auto found = sim().exported.find(id);
    return found == sim().exported.end() ? nullptr : found->second;
}

Physical *adopt(const Ticket &ticket, Store *store, uint64_t place) {
    auto *physical = new Physical;
    physical->store = store;
    physical->device = sim().devices[static_cast<size_t>(ticket.device)].get();
    physical->offset = ticket.offset;
    physical->size = ticket.size;
    physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->properties.location = {};
    physical->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->properties.location.id = ticket.device;
    physical->properties.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(ticket.handle_types);
    physical->ticket = place;
    physical->imported = true;
    hold(*store, place);
    return physical;
}

} // namespace

Physical &find_physical(CUmemGenericAllocationHandle handle) {
    return find_object(sim().physicals, handle, "allocation handle");
}

unsigned handle_types_of(const Physical &physical) {
    return static_cast<unsigned>(physical.properties.requestedHandleTypes);
}

void end_mapping(Physical &physical) {
    --physical.mappings;
    give_back_unused(&physical);
}

void collect_unheld() {
    const std::vector<Physical *> left(sim().left_to_descriptors.begin(),
                                       sim().left_to_descriptors.end());
    for (Physical *physical : left) {
        give_back_unused(physical);
    }
}

void api::mem_create(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    expect_success(check(prop));
    expect(handle && flags == 0 && size != 0 && size % Device::granule == 0);
    collect_unheld();
    Device &device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                         ? *device_at(prop->location.id)
                         : host_memory_of_devices();
    const auto offset = device.take(size);
    expect(offset.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
    auto *physical = new Physical;
    physical->id = ++sim().buffer_ids;
    physical->store = &device.store;
    physical->device = &device;
    physical->offset = *offset;
    physical->size = size;
    physical->properties = *prop;
    add_handle(*physical);
    *handle = physical->handle;
}

void api::mem_release(CUmemGenericAllocationHandle handle) {
    if (release_multicast(handle)) {
        return;
    }
    Physical &physical = find_physical(handle);
    if (--physical.references == 0) {
        sim().physicals.erase(handle);
        physical.handle = 0;
        give_back_unused(&physical);
    }
}

void api::mem_retain_allocation_handle(CUmemGenericAllocationHandle *handle, void *addr) {
    const Region *region = sim().regions.around(reinterpret_cast<CUdeviceptr>(addr));
    expect(handle && region && region->kind == Kind::mapped);
    add_handle(*region->physical);
    *handle = region->physical->handle;
}

void api::mem_get_allocation_properties_from_handle(CUmemAllocationProp *prop,
                                                    CUmemGenericAllocationHandle handle) {
    tell(prop, find_physical(handle).properties);
}

void api::mem_get_allocation_granularity(size_t *granularity, const CUmemAllocationProp *prop,
                                         CUmemAllocationGranularity_flags option) {
    const CUresult result = check(prop);
    expect(granularity && option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED &&
           result != CUDA_ERROR_INVALID_VALUE);
    *granularity = Device::granule;
}

void api::mem_export_to_shareable_handle(void *shareable_handle,
                                         CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType handle_type,
                                         unsigned long long flags) {
    Physical &physical = find_physical(handle);
    expect(shareable_handle && flags == 0 &&
           handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           !(!(handle_types_of(physical) & handle_type)));
    if (physical.ticket == 0) {
        const Ticket ticket = {0,
                               Ticket::Kind::physical,
                               physical.device->ordinal,
                               physical.id,
                               physical.offset,
                               physical.size,
                               handle_types_of(physical)};
        const uint64_t place = new_ticket_place(*physical.store);
        expect(write_ticket(*physical.store, place, ticket), CUDA_ERROR_UNKNOWN);
        physical.ticket = place;
        sim().exported[physical.id] = &physical;
    }
    const int descriptor = make_share(*physical.store, physical.ticket);
    expect(descriptor >= 0, CUDA_ERROR_UNKNOWN);
    std::memcpy(shareable_handle, &descriptor, sizeof descriptor);
}

void api::mem_import_from_shareable_handle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                           CUmemAllocationHandleType sh_handle_type) {
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
    Ticket ticket;
    Store *store = nullptr;
    uint64_t place = 0;
    expect(handle && sh_handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           open_share(descriptor, Ticket::Kind::physical, ticket, store, place));
    find_device(ticket.device);
    Physical *physical = is_foreign(store) ? adopt(ticket, store, place) : find_by_id(ticket.id);
    expect(physical);
    add_handle(*physical);
    *handle = physical->handle;
}

} // namespace simcuda
