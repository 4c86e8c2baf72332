#include "observe/error.h"
#include "sharing/importer/connection.h"
#include "sharing/importer/mapping.h"

#include <cstring>
#include <new>
#include <string>

namespace emm::sharing {
namespace {

uint64_t parts_of(const emm_ipc_handle &handle) noexcept {
    DescriptorHandle it;
    std::memcpy(&it, handle.handle, sizeof it);
    return it.parts;
}

emm_status map_part(const driver::Driver &driver, CUdeviceptr address, uint64_t size,
                    int descriptor) {
    CUmemGenericAllocationHandle memory = 0;
    EMM_TRY(driver::check(driver.cuMemImportFromShareableHandle(
                              &memory, reinterpret_cast<void *>(static_cast<intptr_t>(descriptor)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                          "cuMemImportFromShareableHandle"));
    CUresult result = driver.cuMemMap(address, size, 0, memory, 0);
    driver.cuMemRelease(memory); // the mapping keeps it
    return driver::check(result, "cuMemMap");
}

// Maps the parts of one message behind those that are mapped, and closes the descriptors.
emm_status map_batch(const driver::Driver &driver, const Reply &reply,
                     sockets::Descriptors &descriptors, uint64_t &mapped, Mapping &mapping) {
    if (mapping.parts.capacity() - mapping.parts.size() <
        reply.count) { // here, not behind the driver
        mapping.parts.reserve(2 * mapping.parts.size() + reply.count);
    }
    for (uint32_t i = 0; i < reply.count; ++i) {
        const uint64_t size = reply.sizes[i];
        if (size == 0 || size > mapping.size - mapped) {
            return observe::refuse("an IPC handle's parts: expected {} bytes in all, found one "
                                   "that leads beyond",
                                   mapping.size);
        }
        EMM_TRY(map_part(driver, mapping.base + mapped, size, descriptors[i]));
        descriptors.close(i);
        mapping.parts.push_back({mapped, size});
        mapped += size;
    }
    return EMM_OK;
}

// The exporter has answered by the time that addresses are reserved for what it has.
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
    const emm_status status = observe::with_memory("no memory to note an export's parts", [&] {
        return map_all(context, connection, parts, mapping);
    });
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
            mapping.parts.erase(mapping.parts.begin() + static_cast<ptrdiff_t>(i));
        } else {
            result = unmapped;
        }
    }
    return result == CUDA_SUCCESS ? driver.cuMemAddressFree(mapping.base, mapping.size) : result;
}

} // namespace emm::sharing
