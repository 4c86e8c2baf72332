#include "core/record/owner_lock.h"
#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/process.h"
#include "sharing/importer/connection.h"
#include "sharing/importer/mapping.h"

#include <cstring>
#include <map>
#include <new>
#include <set>
#include <utility>

namespace emm::sharing {
namespace {

uint64_t parts_of(const emm_ipc_handle &handle) noexcept {
    DescriptorHandle it;
    std::memcpy(&it, handle.handle, sizeof it);
    return it.parts;
}

emm_status map_part(const driver::Driver &driver, CUdeviceptr address, uint64_t size,
                    int descriptor, CUmemGenericAllocationHandle &ret_unreleased) {
    CUmemGenericAllocationHandle memory = 0;
    EMM_TRY(driver::check(driver.cuMemImportFromShareableHandle(
                              &memory, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                          "cuMemImportFromShareableHandle"));
    const CUresult result = driver.cuMemMap(address, size, 0, memory, 0);
    // The mapping keeps the memory.
    ret_unreleased = driver.cuMemRelease(memory) == CUDA_SUCCESS ? 0 : memory;
    return driver::check(result, "cuMemMap");
}

// Maps the parts of one message behind those that are mapped already, and closes the descriptors.
emm_status map_batch(const driver::Driver &driver, const Reply &reply,
                     sockets::Descriptors &descriptors, uint64_t &mapped, Mapping &mapping) {
    if (mapping.parts.capacity() - mapping.parts.size() <
        reply.count) { // checked here, not by the driver
        mapping.parts.reserve(2 * mapping.parts.size() + reply.count);
    }
    for (uint32_t i = 0; i < reply.count; ++i) {
        const uint64_t size = reply.sizes[i];
        if (size == 0 || size > mapping.size - mapped) {
            return observe::refuse("an IPC handle's parts: expected {} bytes in all, found more",
                                   mapping.size);
        }
        CUmemGenericAllocationHandle unreleased = 0;
        EMM_TRY(map_part(driver, mapping.base + mapped, size, descriptors[i], unreleased));
        descriptors.close(i);
        mapping.parts.push_back({mapped, size, unreleased});
        mapped += size;
    }
    return EMM_OK;
}

// The exporter has answered before addresses are reserved for its parts.
emm_status map_all(const emm_context &context, Connection &connection, uint64_t parts,
                   Mapping &mapping) {
    const driver::Driver &driver = context.driver;
    uint64_t mapped = 0;
    while (mapping.parts.size() < parts) {
        Reply reply;
        sockets::Descriptors descriptors;
        EMM_TRY(connection.ask(mapping.parts.size(), &reply, descriptors));
        if (!mapping.base) {
            EMM_TRY(
                EMM_DRIVER_CALL(driver, cuMemAddressReserve, &mapping.base, mapping.size, 0, 0, 0));
        }
        EMM_TRY(map_batch(driver, reply, descriptors, mapped, mapping));
    }
    if (mapped != mapping.size) {
        return observe::refuse("an IPC handle's parts: expected {} bytes in all, found {}",
                               mapping.size, mapped);
    }
    return grant_access(context, mapping);
}

} // namespace

emm_status map_parts(const emm_context &context, const emm_ipc_handle &handle, Mapping &mapping) {
    const uint64_t parts = parts_of(handle);
    mapping.size = handle.exported_size;
    Connection connection(handle, parts);
    const emm_status status =
        observe::with_memory("no host memory to record an export's parts",
                             [&] { return map_all(context, connection, parts, mapping); });
    if (status != EMM_OK && mapping.base) {
        const observe::Preserved said;
        unmap_parts(context.driver, mapping);
    }
    return status;
}

CUresult unmap_parts(const driver::Driver &driver, Mapping &mapping) noexcept {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = mapping.parts.size(); i-- > 0;) {
        const Mapping::Part part = mapping.parts[i];
        const CUresult unmapped = driver.cuMemUnmap(mapping.base + part.offset, part.size);
        if (unmapped == CUDA_SUCCESS) {
            if (part.unreleased) {
                driver.cuMemRelease(part.unreleased);
            }
            mapping.parts.erase(mapping.parts.begin() + static_cast<ptrdiff_t>(i));
        } else {
            result = unmapped;
        }
    }
    return result == CUDA_SUCCESS ? driver.cuMemAddressFree(mapping.base, mapping.size) : result;
}

namespace {

// If a pool is imported again, CUDA returns the same pool; if an allocation is, the same address.
// CUDA counts neither: one cuMemPoolDestroy ends all mappings of a pool, and one cuMemFree all at
// an address. So the addresses are kept here. One thread at a time imports or leaves a pool;
// otherwise it might get one that another thread is about to destroy.
struct ImportedPools {
    core::OwnerLock lock;
    std::map<CUmemoryPool, std::set<CUdeviceptr>> mappings;
};

constexpr auto &pools = observe::immortal<ImportedPools>;

CUresult leave_pool(const driver::Driver &driver, CUmemoryPool pool) noexcept {
    const auto found = pools().mappings.find(pool);
    if (found == pools().mappings.end() || !found->second.empty()) {
        return CUDA_SUCCESS;
    }
    const CUresult result = driver.cuMemPoolDestroy(pool);
    if (result == CUDA_SUCCESS) {
        pools().mappings.erase(found);
    }
    return result;
}

emm_status fetch_descriptor(const emm_ipc_handle &handle, int *ret_descriptor) {
    Connection connection(handle, 1);
    Reply reply = {};
    sockets::Descriptors descriptors;
    EMM_TRY(connection.ask(0, &reply, descriptors));
    *ret_descriptor = descriptors.take(0);
    return EMM_OK;
}

emm_status import_pool(const emm_context &context, int descriptor, CUmemoryPool *ret_pool) {
    CUmemoryPool pool = nullptr;
    EMM_TRY(driver::check(context.driver.cuMemPoolImportFromShareableHandle(
                              &pool, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                          "cuMemPoolImportFromShareableHandle"));
    try {
        pools().mappings.try_emplace(pool);
    } catch (const std::bad_alloc &) { // then no other import shares it
        context.driver.cuMemPoolDestroy(pool);
        throw;
    }
    *ret_pool = pool;
    return EMM_OK;
}

emm_status import_pointer(const emm_context &context, const emm_ipc_handle &handle,
                          Mapping &mapping) {
    CUmemPoolPtrExportData name;
    static_assert(sizeof name == sizeof handle.handle);
    std::memcpy(&name, handle.handle, sizeof name);
    CUdeviceptr base = 0;
    CUresult result = context.driver.cuMemPoolImportPointer(&base, mapping.pool, &name);
    std::set<CUdeviceptr> &open = pools().mappings[mapping.pool];
    if (result == CUDA_SUCCESS && open.count(base) != 0) {
        result = CUDA_ERROR_ALREADY_MAPPED;
    }
    if (result != CUDA_SUCCESS) {
        return fail_to_open(result, "cuMemPoolImportPointer");
    }
    try {
        open.insert(base);
    } catch (const std::bad_alloc &) {
        context.driver.cuMemFree(base);
        throw;
    }
    mapping.base = base;
    return EMM_OK;
}

} // namespace

emm_status map_pooled(const emm_context &context, const emm_ipc_handle &handle, Mapping &mapping) {
    int descriptor = -1;
    EMM_TRY(fetch_descriptor(handle, &descriptor));
    const core::OwnerGuard alone(pools().lock);
    const emm_status status =
        observe::with_memory("no host memory to record a memory pool", [&]() -> emm_status {
            EMM_TRY(import_pool(context, descriptor, &mapping.pool));
            EMM_TRY(grant_access(context, mapping));
            return import_pointer(context, handle, mapping);
        });
    observe::forget_and_close(descriptor);
    if (status != EMM_OK && mapping.pool) {
        leave_pool(context.driver, mapping.pool);
    }
    return status;
}

CUresult unmap_pooled(const driver::Driver &driver, Mapping &mapping) noexcept {
    const core::OwnerGuard alone(pools().lock);
    if (mapping.base) {
        const CUresult result = driver.cuMemFree(mapping.base);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        pools().mappings.find(mapping.pool)->second.erase(std::exchange(mapping.base, 0));
    }
    return leave_pool(driver, mapping.pool);
}

void forget_pooled(const Mapping &mapping) noexcept {
    const core::OwnerGuard alone(pools().lock);
    if (const auto found = pools().mappings.find(mapping.pool); found != pools().mappings.end()) {
        found->second.erase(mapping.base);
    }
}

} // namespace emm::sharing
