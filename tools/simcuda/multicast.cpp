#include "multicast.h"

#include "call.h"
#include "simulator.h"

namespace simcuda {

bool release_multicast(CUmemGenericAllocationHandle handle) {
    const Multicast *const multicast = sim().multicasts.find(handle);
    if (!multicast) {
        return false;
    }
    for (const auto &[place, physical] : multicast->bound) {
        end_mapping(*physical);
    }
    sim().multicasts.destroy(handle);
    return true;
}

#if CUDA_VERSION >= 12010

namespace {

bool is_whole(size_t value) {
    return value % Device::granule == 0;
}

// Bound memory stays, as if it were mapped.
void bind(CUmemGenericAllocationHandle handle, size_t offset, Physical &physical, size_t size,
          unsigned long long flags) {
    Multicast &multicast = find_object(sim().multicasts, handle, "multicast object");
    const std::pair<CUdevice, size_t> place{physical.device->ordinal, offset};
    expect(flags == 0 && size != 0 && is_whole(offset) && is_whole(size) &&
           offset <= multicast.size && size <= multicast.size - offset && size <= physical.size &&
           multicast.devices.count(place.first) > 0);
    expect(multicast.devices.size() == multicast.devices_wanted, CUDA_ERROR_ILLEGAL_STATE);
    expect(multicast.bound.emplace(place, &physical).second);
    ++physical.mappings;
}

} // namespace

void api::multicast_create(CUmemGenericAllocationHandle *handle,
                           const CUmulticastObjectProp *prop) {
    expect(handle && prop && prop->numDevices > 0 && prop->size != 0 && is_whole(prop->size) &&
           prop->flags == 0);
    expect(prop->numDevices <= sim().devices.size());
    auto *const multicast = new Multicast;
    multicast->size = prop->size;
    multicast->devices_wanted = prop->numDevices;
    *handle = sim().multicasts.insert(multicast);
}

void api::multicast_add_device(CUmemGenericAllocationHandle handle, CUdevice device) {
    Multicast &multicast = find_object(sim().multicasts, handle, "multicast object");
    expect(device_at(device) && multicast.devices.size() < multicast.devices_wanted &&
           multicast.devices.insert(device).second);
}

void api::multicast_bind_mem(CUmemGenericAllocationHandle handle, size_t offset,
                             CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                             unsigned long long flags) {
    Physical &physical = find_physical(memory);
    expect(memory_offset <= physical.size && size <= physical.size - memory_offset &&
           is_whole(memory_offset));
    bind(handle, offset, physical, size, flags);
}

void api::multicast_bind_addr(CUmemGenericAllocationHandle handle, size_t offset,
                              CUdeviceptr address, size_t size, unsigned long long flags) {
    const Region *const region = sim().regions.around(address);
    expect(region && region->kind == Kind::mapped && size <= region->end() - address);
    bind(handle, offset, *region->physical, size, flags);
}

void api::multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                           size_t) {
    Multicast &multicast = find_object(sim().multicasts, handle, "multicast object");
    const auto found = multicast.bound.find({device, offset});
    expect(found != multicast.bound.end());
    Physical &physical = *found->second;
    multicast.bound.erase(found);
    end_mapping(physical);
}

void api::multicast_get_granularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                    CUmulticastGranularity_flags) {
    expect(granularity && prop);
    *granularity = Device::granule;
}

#endif

} // namespace simcuda
