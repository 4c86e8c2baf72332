// The program's questions about memory, answered as if the driver had allocated it: each allocation
// stands alone.
#include "server.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace emm::run {
namespace {

// --- where -------------------------------------------------------------------------------------

Answer mem_get_address_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr ptr) {
    const Allocation found = ret_base || ret_size ? server().around(ptr) : Allocation();
    if (found.freed) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (found.address == 0) {
        return {};
    }
    if (ret_base) {
        *ret_base = found.address;
    }
    if (ret_size) {
        *ret_size = found.size;
    }
    return CUDA_SUCCESS;
}

Answer mem_retain_allocation_handle(CUmemGenericAllocationHandle *, void *address) {
    return server().refuses_handle_at(reinterpret_cast<CUdeviceptr>(address))
               ? CUDA_ERROR_INVALID_VALUE
               : Answer();
}

// Freed memory may still be the plugin's.
Answer mem_get_handle_for_address_range(void *, CUdeviceptr address, size_t, CUmemRangeHandleType,
                                        unsigned long long) {
    return server().around(address).freed ? CUDA_ERROR_INVALID_VALUE : Answer();
}

// Counts a further handle of memory with the charge `id`; 0: no charge.
void add_handle(CUmemGenericAllocationHandle handle, uint64_t id) {
    PassedOn &passed = server().passed_on;
    if (id != 0 && emm_keep_driver_memory(id, nullptr) >= 0 &&
        !passed.retain(Passed::physical, handle)) {
        passed.add(Passed::physical, handle, {id});
    }
}

// The last handle before may have been released while the memory was mapped.
void handle_retained(CUmemGenericAllocationHandle *ret_handle, void *address) {
    PassedOn &passed = server().passed_on;
    const uint64_t known = passed.charge_of(Passed::physical, *ret_handle);
    add_handle(*ret_handle, known != 0
                                ? known
                                : passed.charge_mapped_at(reinterpret_cast<CUdeviceptr>(address)));
}

// The process itself may have exported the memory. The driver then gives the same handle again.
void handle_imported(CUmemGenericAllocationHandle *ret_handle, void *, CUmemAllocationHandleType) {
    add_handle(*ret_handle, server().passed_on.charge_of(Passed::physical, *ret_handle));
}

// --- the objects asked about -------------------------------------------------------------------

// Whether the driver would tell of a whole segment or pool where the program has an allocation.
bool is_of_allocation(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return true;
    default:
        return false;
    }
}

template <class Value> void tell(void *ret_data, const Value &value) {
    std::memcpy(ret_data, &value, sizeof value);
}

void tell_attribute(const Allocation &allocation, CUpointer_attribute attribute, void *ret_data) {
    auto info = sized<emm_context_info>();
    emm_context_get_info(allocation.context, &info);
    CUmemoryPool pool = nullptr;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return tell(ret_data, info.cuda_context);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return tell(ret_data, allocation.id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return tell(ret_data, CUdeviceptr(allocation.address));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return tell(ret_data, size_t(allocation.size));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return tell(ret_data, 0ULL); // cuMemRetainAllocationHandle gives no handle
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        if (allocation.pool) {
            pool = server().own_pools.pool_of(allocation.pool);
        } else if (allocation.kind == Kind::ordered) {
            server().driver.cuDeviceGetDefaultMemPool(&pool, info.device);
        }
        return tell(ret_data, pool);
    default:
        return;
    }
}

// The allocation around `ptr`, for an attribute that concerns it or for freed memory; else the
// allocation that begins there.
Allocation asked_about(CUdeviceptr ptr, bool concerns_allocation) {
    const Allocation there = server().allocations.find(ptr);
    return concerns_allocation || there.freed ? server().around(ptr) : there;
}

bool is_host_memory(const void *data) {
    unsigned type = 0;
    std::memcpy(&type, data, sizeof type);
    return type == CU_MEMORYTYPE_HOST;
}

// Corrects the driver's answers about the memory behind an allocation. To the driver, only memory
// of cuMemAlloc is shareable; emm knows which memory it exports. However wide that answer is, its
// first byte is 0 or 1. To the driver, memory that a pool has spilled is host memory, of no device,
// and the CPU cannot read it.
void correct_answer(void *ret_data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    const bool asks_sharing = attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    if (!asks_sharing && attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
        !(attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && is_host_memory(ret_data))) {
        return;
    }
    const Allocation found = server().own_around(ptr);
    if (found.address == 0) {
        return;
    }
    if (asks_sharing) {
        tell(ret_data, uint8_t(server().sharing.can_export(found)));
    } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        tell(ret_data, device_of_context(found.context));
    } else {
        tell(ret_data, unsigned(CU_MEMORYTYPE_DEVICE));
    }
}

// Answers as the driver does for an unknown address, when it is asked for several attributes at
// once.
void tell_unknown(CUpointer_attribute attribute, void *ret_data, CUdeviceptr ptr) {
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
        tell(ret_data, ptr);
    }
}

Answer pointer_get_attribute(void *ret_data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    const bool concerns = ret_data && is_of_allocation(attribute);
    const Allocation found = asked_about(ptr, concerns);
    if (found.freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ret_data && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        // The driver refuses only this question for memory that a pool has spilled.
        const Allocation own = server().own_around(ptr);
        if (own.address == 0) {
            return {};
        }
        tell(ret_data, device_of_context(own.context));
        return CUDA_SUCCESS;
    }
    if (found.address == 0 || !concerns) {
        return {};
    }
    tell_attribute(found, attribute, ret_data);
    return CUDA_SUCCESS;
}

// The driver may still know freed memory as a part of something larger. So it is asked about
// address 0 instead, and its answer about the host's address is put right.
CUresult pointer_get_attributes(unsigned count, CUpointer_attribute *attributes, void **ret_data,
                                CUdeviceptr ptr) {
    const Turn turn;
    const bool concerns =
        attributes && ret_data && std::any_of(attributes, attributes + count, is_of_allocation);
    const Allocation found = turn.is_programs() ? asked_about(ptr, concerns) : Allocation();
    const CUresult result = ask_driver<&pointer_get_attributes>(
        served_cuPointerGetAttributes, count, attributes, ret_data, found.freed ? 0 : ptr);
    const bool is_programs = turn.is_programs() && result == CUDA_SUCCESS;
    for (unsigned i = 0; is_programs && i < count; i++) {
        if (!ret_data[i]) {
            continue;
        }
        if (found.freed) {
            tell_unknown(attributes[i], ret_data[i], ptr);
            continue;
        }
        if (concerns && found.address != 0) {
            tell_attribute(found, attributes[i], ret_data[i]);
        }
        correct_answer(ret_data[i], attributes[i], ptr);
    }
    return result;
}

} // namespace

void serve_questions(Entries &entries) {
    serve<served_cuMemGetAddressRange_v2, &mem_get_address_range>(entries);
    serve<served_cuPointerGetAttribute, &pointer_get_attribute, &correct_answer>(entries);
    entries.at[served_cuPointerGetAttributes] = entry_of<&pointer_get_attributes>();
    serve<served_cuMemRetainAllocationHandle, &mem_retain_allocation_handle, &handle_retained>(
        entries);
    serve<served_cuMemGetHandleForAddressRange, &mem_get_handle_for_address_range>(entries);
    watch<served_cuMemImportFromShareableHandle, &handle_imported>(entries);
}

} // namespace emm::run
