// The driver's memory that no plugin serves: each call is the driver's, and what it makes and ends
// is counted.
#include "server.h"

#include <cstdlib>

namespace emm::run {
namespace {

// By handle, or by address.
template <class Handle> uint64_t key_of(Handle handle) {
    return reinterpret_cast<uint64_t>(handle);
}
template <> uint64_t key_of(unsigned long long handle) {
    return handle;
}

CUcontext current_context() {
    CUcontext context = nullptr;
    server().driver.cuCtxGetCurrent(&context);
    return context;
}

// Whose memory it takes; no_device: that of none, or of one that is counted elsewhere.
constexpr CUdevice no_device = -1;

CUdevice current_device() {
    CUdevice device = no_device;
    return server().driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : no_device;
}

CUdevice device_of(const CUmemAllocationProp &properties) {
    return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id
                                                                   : no_device;
}

// For the report of who holds the memory; 0: it is not asked for.
uint64_t track(CUdevice device, uint64_t bytes) {
    static const bool is_wanted = std::getenv("EMM_TRACK") != nullptr;
    uint64_t id = 0;
    if (is_wanted && device != no_device) {
        emm_track_driver_memory(device, bytes, &id);
    }
    return id;
}

// What a call has made.
struct Made {
    uint64_t key, bytes;
    CUdevice device = no_device;
};

// A call that makes one; `made` tells of it once it has succeeded.
template <class Call, class Tell>
CUresult make(Passed kind, CUcontext context, Call call, Tell made) {
    const Turn turn;
    const CUresult result = call();
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        const auto [key, bytes, device] = made();
        server().passed_on.add(kind, key, {bytes, context, 1, track(device, bytes)});
    }
    return result;
}

// Before the call: another thread may get the handle.
template <class Call> CUresult end(Passed kind, uint64_t key, Call call) {
    const Turn turn;
    PassedOn &passed = server().passed_on;
    const bool counts = turn.is_programs();
    const PassedOn::Item item = counts ? passed.release(kind, key) : PassedOn::Item();
    const CUresult result = call();
    if (counts && result != CUDA_SUCCESS) {
        passed.put_back(kind, key, item);
    } else if (counts && item.references == 1) {
        emm_untrack_driver_memory(item.tracked);
    }
    return result;
}

// --- physical memory and mappings --------------------------------------------------------------

CUresult mem_create(CUmemGenericAllocationHandle *ret_handle, size_t size,
                    const CUmemAllocationProp *properties, unsigned long long flags) {
    return make(
        Passed::physical, nullptr,
        [&] {
            return ask_driver<&mem_create>(served_cuMemCreate, ret_handle, size, properties, flags);
        },
        [&] {
            return Made{key_of(*ret_handle), size, device_of(*properties)};
        });
}

CUresult mem_release(CUmemGenericAllocationHandle handle) {
    return end(Passed::physical, key_of(handle),
               [&] { return ask_driver<&mem_release>(served_cuMemRelease, handle); });
}

CUresult mem_map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags) {
    return make(
        Passed::mapped, nullptr,
        [&] { return ask_driver<&mem_map>(served_cuMemMap, ptr, size, offset, handle, flags); },
        [&] {
            server().allocations.forget_within(ptr, size);
            return Made{ptr, size};
        });
}

// Of a range that the driver refuses nothing is unmapped.
CUresult mem_unmap(CUdeviceptr ptr, size_t size) {
    const Turn turn;
    PassedOn::Items items;
    if (turn.is_programs()) {
        items = server().passed_on.release_range(Passed::mapped, ptr, size);
    }
    const CUresult result = ask_driver<&mem_unmap>(served_cuMemUnmap, ptr, size);
    for (const auto &[address, item] : items) {
        if (result != CUDA_SUCCESS) {
            server().passed_on.put_back(Passed::mapped, address, item);
        }
    }
    return result;
}

// --- arrays ------------------------------------------------------------------------------------

CUDA_ARRAY3D_DESCRIPTOR in_3d(const CUDA_ARRAY_DESCRIPTOR &descriptor) {
    CUDA_ARRAY3D_DESCRIPTOR made = {};
    made.Width = descriptor.Width;
    made.Height = descriptor.Height;
    made.Format = descriptor.Format;
    made.NumChannels = descriptor.NumChannels;
    return made;
}

CUresult array_create(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *descriptor) {
    return make(
        Passed::array, current_context(),
        [&] { return ask_driver<&array_create>(served_cuArrayCreate_v2, ret_array, descriptor); },
        [&] {
            return Made{key_of(*ret_array), array_bytes(in_3d(*descriptor)), current_device()};
        });
}

CUresult array_3d_create(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return make(
        Passed::array, current_context(),
        [&] {
            return ask_driver<&array_3d_create>(served_cuArray3DCreate_v2, ret_array, descriptor);
        },
        [&] {
            return Made{key_of(*ret_array), array_bytes(*descriptor), current_device()};
        });
}

CUresult array_destroy(CUarray array) {
    return end(Passed::array, key_of(array),
               [&] { return ask_driver<&array_destroy>(served_cuArrayDestroy, array); });
}

CUresult mipmapped_array_create(CUmipmappedArray *ret_array,
                                const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels) {
    return make(
        Passed::mipmapped_array, current_context(),
        [&] {
            return ask_driver<&mipmapped_array_create>(served_cuMipmappedArrayCreate, ret_array,
                                                       descriptor, levels);
        },
        [&] {
            return Made{key_of(*ret_array), mipmapped_bytes(*descriptor, levels), current_device()};
        });
}

CUresult mipmapped_array_destroy(CUmipmappedArray array) {
    return end(Passed::mipmapped_array, key_of(array), [&] {
        return ask_driver<&mipmapped_array_destroy>(served_cuMipmappedArrayDestroy, array);
    });
}

// --- external memory ---------------------------------------------------------------------------

CUresult import_external(CUexternalMemory *ret_memory,
                         const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor) {
    return make(
        Passed::external, current_context(),
        [&] {
            return ask_driver<&import_external>(served_cuImportExternalMemory, ret_memory,
                                                descriptor);
        },
        [&] {
            return Made{key_of(*ret_memory), descriptor->size};
        });
}

CUresult destroy_external(CUexternalMemory memory) {
    return end(Passed::external, key_of(memory), [&] {
        return ask_driver<&destroy_external>(served_cuDestroyExternalMemory, memory);
    });
}

void say_at_exit() {
    const std::string line = Turn::is_forked_child() ? "" : server().passed_on.line();
    if (!line.empty()) {
        emm_log(EMM_LOG_INFO, ("emm run: the driver's own memory: " + line).c_str());
    }
}

} // namespace

void serve_counted(Entries &entries) {
    entries.at[served_cuMemCreate] = entry_of<&mem_create>();
    entries.at[served_cuMemRelease] = entry_of<&mem_release>();
    entries.at[served_cuMemMap] = entry_of<&mem_map>();
    entries.at[served_cuMemUnmap] = entry_of<&mem_unmap>();
    entries.at[served_cuArrayCreate_v2] = entry_of<&array_create>();
    entries.at[served_cuArray3DCreate_v2] = entry_of<&array_3d_create>();
    entries.at[served_cuArrayDestroy] = entry_of<&array_destroy>();
    entries.at[served_cuMipmappedArrayCreate] = entry_of<&mipmapped_array_create>();
    entries.at[served_cuMipmappedArrayDestroy] = entry_of<&mipmapped_array_destroy>();
    entries.at[served_cuImportExternalMemory] = entry_of<&import_external>();
    entries.at[served_cuDestroyExternalMemory] = entry_of<&destroy_external>();
    std::atexit(&say_at_exit);
}

} // namespace emm::run
