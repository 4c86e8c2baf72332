// Pinned host memory, and the program's own memory that it pins.
#include "server.h"

#include <cstdint>
#include <cstring>

namespace emm::run {
namespace {

constexpr unsigned alloc_flags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned register_flags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

// emm's flags are CUDA's. With unified addresses CUDA's host memory is always portable and mapped,
// whatever the program asks for.
uint32_t flags_for_emm(unsigned flags) {
    return flags | EMM_HOST_PORTABLE | EMM_HOST_MAPPED;
}

uint64_t address_of(const void *host) {
    return reinterpret_cast<uintptr_t>(host);
}

Answer allocate_pinned(size_t bytes, unsigned flags, void **ret_host) {
    return in_current([&](emm_context *context) -> Answer {
        void *host = nullptr;
        const emm_status status = allocate_with_release(context, bytes, Memory::pinned, [&] {
            return emm_memhostalloc(context, bytes, flags_for_emm(flags), &host, nullptr);
        });
        if (status < 0) {
            return status == EMM_E_NOT_SUPPORTED ? Answer() : unserved(status);
        }
        const Allocation made = {address_of(host), bytes, context, 0, flags, Kind::pinned};
        if (!server().allocations.insert(made)) {
            emm_memhostfree(context, host, bytes, flags_for_emm(flags), EMM_STREAM_UNORDERED);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (server().options.zero) {
            std::memset(host, 0, bytes); // no work of the device uses the memory any longer
        }
        *ret_host = host;
        return CUDA_SUCCESS;
    });
}

// The driver has given host memory to the program itself. Forgets emm's former allocations there.
template <class... More> void driver_gave_host(void **ret_host, size_t bytes, More...) {
    server().allocations.forget_within(address_of(*ret_host), bytes);
}

Answer mem_host_alloc(void **ret_host, size_t bytes, unsigned flags) {
    return ret_host && bytes != 0 && (flags & ~alloc_flags) == 0
               ? allocate_pinned(bytes, flags, ret_host)
               : Answer();
}

Answer mem_alloc_host(void **ret_host, size_t bytes) {
    return mem_host_alloc(ret_host, bytes, 0);
}

Answer free_pinned(void *host) {
    const Allocation found = server().allocations.take(address_of(host), uint32_t(Kind::pinned));
    if (found.address == 0) {
        return found.freed ? Answer(CUDA_ERROR_INVALID_VALUE) : Answer();
    }
    const emm_status status = emm_memhostfree(found.context, host, found.size,
                                              flags_for_emm(found.flags), EMM_STREAM_UNORDERED);
    if (status < 0) {
        server().allocations.put_back(found);
    }
    return result_of(status);
}

Answer pin(void *host, size_t bytes, unsigned flags) {
    if (!host || bytes == 0 || (flags & ~register_flags) != 0) {
        return {};
    }
    return in_current([&](emm_context *context) -> Answer {
        const emm_status status = emm_mempin(context, host, bytes, flags_for_emm(flags), nullptr);
        if (status < 0) {
            return status == EMM_E_NOT_SUPPORTED ? Answer() : unserved(status);
        }
        // emm's pinned memory may have been at that address.
        server().allocations.forget_within(address_of(host), bytes);
        const Allocation made = {address_of(host), bytes, context, 0, flags, Kind::registered};
        if (!server().allocations.insert(made)) {
            emm_memunpin(context, host, bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    });
}

void driver_pinned(void *host, size_t bytes, unsigned) {
    server().allocations.forget_within(address_of(host), bytes);
}

Answer unpin(void *host) {
    const Allocation found =
        server().allocations.take(address_of(host), uint32_t(Kind::registered));
    if (found.address == 0) {
        return found.freed ? Answer(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) : Answer();
    }
    const emm_status status = emm_memunpin(found.context, host, found.size);
    if (status < 0) {
        server().allocations.put_back(found);
    }
    return result_of(status);
}

Answer mem_host_get_flags(unsigned *ret_flags, void *host) {
    const Allocation found = server().host_around(address_of(host));
    if (found.address == 0 && found.freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    constexpr uint32_t kinds = uint32_t(Kind::pinned) | uint32_t(Kind::registered);
    if (found.address == 0 || !found.is_one_of(kinds) || !ret_flags) {
        return {};
    }
    const bool is_registered = found.kind == Kind::registered;
    // Unified addresses map all pinned memory; the driver does not report read-only memory as such.
    *ret_flags = (is_registered ? found.flags & CU_MEMHOSTREGISTER_PORTABLE : found.flags) |
                 CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

} // namespace

void serve_host_memory(Entries &entries) {
    serve<served_cuMemHostAlloc, &mem_host_alloc, &driver_gave_host<unsigned>>(entries);
    serve<served_cuMemAllocHost_v2, &mem_alloc_host, &driver_gave_host<>>(entries);
    serve<served_cuMemFreeHost, &free_pinned>(entries);
    serve<served_cuMemHostRegister, &pin, &driver_pinned>(entries);
    serve<served_cuMemHostRegister_v2, &pin, &driver_pinned>(entries);
    serve<served_cuMemHostUnregister, &unpin>(entries);
    serve<served_cuMemHostGetFlags, &mem_host_get_flags>(entries);
}

} // namespace emm::run
