#include "call.h"
#include "pool.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>

namespace simcuda {
namespace {

template <typename Value> void answer(void *data, Value value) {
    memcpy(data, &value, sizeof value);
}

CUcontext context_of(const Region &region) {
    return region.context ? region.context->handle : nullptr;
}

unsigned handle_types_of(const Region &region) {
    return region.kind == Kind::mapped   ? simcuda::handle_types_of(*region.physical)
           : region.kind == Kind::pooled ? simcuda::handle_types_of(*region.pool)
                                         : 0;
}

void tell(const Region &region, CUpointer_attribute attribute, CUdeviceptr address, void *data) {
    const bool host = region.on_host();
    const bool host_pages = region.kind == Kind::mapped && region.device->of_host;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return answer(data, context_of(region));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return answer<unsigned>(data,
                                host || host_pages ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return answer(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        expect(host || region.kind == Kind::managed);
        return answer(data, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return answer<unsigned>(data, region.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return answer<unsigned long long>(data, region.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return answer<unsigned>(data, region.kind == Kind::managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        expect(!host_pages); // not known of a GPU
        return answer<int>(data, region.device->ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return answer<unsigned>(data, region.kind == Kind::device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return answer(data, region.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return answer<size_t>(data, region.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return answer<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return answer<unsigned long long>(data, handle_types_of(region));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return answer(data, region.pool ? region.pool->handle : nullptr);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return answer<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    default:
        refuse(CUDA_ERROR_INVALID_VALUE);
    }
}

size_t size_of(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return 4;
    default:
        return 8;
    }
}

} // namespace

void api::pointer_get_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    const Region *region = sim().regions.around(ptr);
    expect(data && region);
    tell(*region, attribute, ptr, data);
}

namespace {

// For memory that the driver does not know: the answers of driver 580.
void tell_unknown(CUpointer_attribute attribute, CUdeviceptr address, void *data) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        answer(data, address);
        return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        answer<int>(data, -2); // CU_DEVICE_INVALID
        return;
    default:
        memset(data, 0, size_of(attribute));
    }
}

} // namespace

void api::pointer_get_attributes(unsigned int num_attributes, CUpointer_attribute *attributes,
                                 void **data, CUdeviceptr ptr) {
    const Region *region = sim().regions.around(ptr);
    expect(num_attributes != 0 && attributes && data &&
           std::find(data, data + num_attributes, nullptr) == data + num_attributes);
    for (unsigned i = 0; i < num_attributes; ++i) {
        if (!region) {
            tell_unknown(attributes[i], ptr, data[i]);
        } else if (result_of([&] { tell(*region, attributes[i], ptr, data[i]); }) != CUDA_SUCCESS) {
            memset(data[i], 0, size_of(attributes[i]));
        }
    }
}

// No other attribute can be set, and none on a mapping. Work in progress has ended when the call
// returns.
void api::pointer_set_attribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr) {
    const Region *region = sim().regions.around(ptr);
    expect(value && region && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    expect(region->kind != Kind::mapped, CUDA_ERROR_NOT_SUPPORTED);
    unsigned wanted;
    std::memcpy(&wanted, value, sizeof wanted);
    const CUdeviceptr start = region->start;
    const uint64_t id = region->id;
    if (Context *context = region->context; context && wanted) {
        wait_for(*context);
    }
    Region *still = sim().regions.at(start);
    expect(still && still->id == id); // otherwise another thread has freed it meanwhile
    still->sync_memops = wanted != 0;
}

} // namespace simcuda
