// Pinned host memory, and memory of the program's own that is pinned.
#include "server.h"

#include <cstdint>

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
        *ret_host = host;
        return CUDA_SUCCESS;
    });
}

// What the driver has given out or pinned for the program itself, where emm's may have been.
CUresult from_driver_at(const Turn &turn, CUresult result, const void *host, size_t bytes) {
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().allocations.forget_within(address_of(host), bytes);
    }
    return result;
}

CUresult mem_host_alloc(void **ret_host, size_t bytes, unsigned flags) {
    const Turn turn;
    Answer answer;
    if (turn.is_programs() && ret_host && bytes != 0 && (flags & ~alloc_flags) == 0) {
        answer = allocate_pinned(bytes, flags, ret_host);
    }
    if (answer) {
        return *answer;
    }
    const CUresult result =
        ask_driver<&mem_host_alloc>(served_cuMemHostAlloc, ret_host, bytes, flags);
    return from_driver_at(turn, result, result == CUDA_SUCCESS ? *ret_host : nullptr, bytes);
}

CUresult mem_alloc_host(void **ret_host, size_t bytes) {
    const Turn turn;
    Answer answer;
    if (turn.is_programs() && ret_host && bytes != 0) {
        answer = allocate_pinned(bytes, 0, ret_host);
    }
    if (answer) {
        return *answer;
    }
    const CUresult result = ask_driver<&mem_alloc_host>(served_cuMemAllocHost_v2, ret_host, bytes);
    return from_driver_at(turn, result, result == CUDA_SUCCESS ? *ret_host : nullptr, bytes);
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

CUresult mem_free_host(void *host) {
    const Turn turn;
    const Answer answer = turn.is_programs() ? free_pinned(host) : Answer();
    return answer ? *answer : ask_driver<&mem_free_host>(served_cuMemFreeHost, host);
}

Answer pin(void *host, size_t bytes, unsigned flags) {
    return in_current([&](emm_context *context) -> Answer {
        const emm_status status = emm_mempin(context, host, bytes, flags_for_emm(flags), nullptr);
        if (status < 0) {
            return status == EMM_E_NOT_SUPPORTED ? Answer() : unserved(status);
        }
        // Pinned memory of emm's may have been there.
        server().allocations.forget_within(address_of(host), bytes);
        const Allocation made = {address_of(host), bytes, context, 0, flags, Kind::registered};
        if (!server().allocations.insert(made)) {
            emm_memunpin(context, host, bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
    });
}

template <Served entry> CUresult mem_host_register(void *host, size_t bytes, unsigned flags) {
    const Turn turn;
    Answer answer;
    if (turn.is_programs() && host && bytes != 0 && (flags & ~register_flags) == 0) {
        answer = pin(host, bytes, flags);
    }
    return answer ? *answer
                  : from_driver_at(turn,
                                   ask_driver<&mem_host_register<entry>>(entry, host, bytes, flags),
                                   host, bytes);
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

CUresult mem_host_unregister(void *host) {
    const Turn turn;
    const Answer answer = turn.is_programs() ? unpin(host) : Answer();
    return answer ? *answer : ask_driver<&mem_host_unregister>(served_cuMemHostUnregister, host);
}

CUresult mem_host_get_flags(unsigned *ret_flags, void *host) {
    const Turn turn;
    const Allocation found =
        turn.is_programs() ? server().host_around(address_of(host)) : Allocation();
    if (found.address == 0 && found.freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    constexpr uint32_t kinds = uint32_t(Kind::pinned) | uint32_t(Kind::registered);
    if (found.address == 0 || !found.is_one_of(kinds) || !ret_flags) {
        return ask_driver<&mem_host_get_flags>(served_cuMemHostGetFlags, ret_flags, host);
    }
    const bool is_registered = found.kind == Kind::registered;
    // Unified addresses map all of it; what is read-only does not say so.
    *ret_flags = (is_registered ? found.flags & CU_MEMHOSTREGISTER_PORTABLE : found.flags) |
                 CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

} // namespace

void serve_host_memory(Entries &entries) {
    entries.at[served_cuMemHostAlloc] = entry_of<&mem_host_alloc>();
    entries.at[served_cuMemAllocHost_v2] = entry_of<&mem_alloc_host>();
    entries.at[served_cuMemFreeHost] = entry_of<&mem_free_host>();
    entries.at[served_cuMemHostRegister] = entry_of<&mem_host_register<served_cuMemHostRegister>>();
    entries.at[served_cuMemHostRegister_v2] =
        entry_of<&mem_host_register<served_cuMemHostRegister_v2>>();
    entries.at[served_cuMemHostUnregister] = entry_of<&mem_host_unregister>();
    entries.at[served_cuMemHostGetFlags] = entry_of<&mem_host_get_flags>();
}

} // namespace emm::run
