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

// --- what is made and destroyed by handle ------------------------------------------------------

// How large it is, and on which device, by the arguments behind the handle's place.
struct Told {
    uint64_t bytes;
    CUdevice device = no_device;
};

Told tell_physical(size_t size, const CUmemAllocationProp *properties, unsigned long long) {
    return {size, device_of(*properties)};
}

Told tell_array_3d(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return {array_bytes(*descriptor), current_device()};
}

Told tell_array(const CUDA_ARRAY_DESCRIPTOR *descriptor) {
    CUDA_ARRAY3D_DESCRIPTOR same = {};
    same.Width = descriptor->Width;
    same.Height = descriptor->Height;
    same.Format = descriptor->Format;
    same.NumChannels = descriptor->NumChannels;
    return tell_array_3d(&same);
}

Told tell_mipmapped_array(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels) {
    return {mipmapped_bytes(*descriptor, levels), current_device()};
}

Told tell_external(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor) {
    return {descriptor->size};
}

// Physical memory outlives contexts.
template <Passed kind, class Handle, auto told> struct Made;
template <Passed kind, class Handle, class... More, Told (*told)(More...)>
struct Made<kind, Handle, told> {
    static void count(Handle *ret_handle, More... more) {
        const Told its = told(more...);
        server().passed_on.add(kind, key_of(*ret_handle),
                               {its.bytes, kind == Passed::physical ? nullptr : current_context(),
                                1, track(its.device, its.bytes)});
    }
};

template <Served entry, Passed kind, class Handle> CUresult destroy(Handle handle) {
    return end(kind, key_of(handle),
               [&] { return ask_driver<&destroy<entry, kind, Handle>>(entry, handle); });
}

template <Passed kind, class Handle, Served create_entry, Served destroy_entry, auto told>
void serve_both(Entries &entries) {
    watch<create_entry, &Made<kind, Handle, told>::count>(entries);
    entries.at[destroy_entry] = entry_of<&destroy<destroy_entry, kind, Handle>>();
}

// --- mappings ----------------------------------------------------------------------------------

void mapped(CUdeviceptr ptr, size_t size, size_t, CUmemGenericAllocationHandle,
            unsigned long long) {
    server().allocations.forget_within(ptr, size);
    server().passed_on.add(Passed::mapped, ptr, {size, nullptr, 1, 0});
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

void say_at_exit() {
    const std::string line = Turn::is_forked_child() ? "" : server().passed_on.line();
    if (!line.empty()) {
        emm_log(EMM_LOG_INFO, ("emm run: the driver's own memory: " + line).c_str());
    }
}

} // namespace

void serve_counted(Entries &entries) {
    serve_both<Passed::physical, CUmemGenericAllocationHandle, served_cuMemCreate,
               served_cuMemRelease, &tell_physical>(entries);
    watch<served_cuMemMap, &mapped>(entries);
    entries.at[served_cuMemUnmap] = entry_of<&mem_unmap>();
    serve_both<Passed::array, CUarray, served_cuArray3DCreate_v2, served_cuArrayDestroy,
               &tell_array_3d>(entries);
    watch<served_cuArrayCreate_v2, &Made<Passed::array, CUarray, &tell_array>::count>(entries);
    serve_both<Passed::mipmapped_array, CUmipmappedArray, served_cuMipmappedArrayCreate,
               served_cuMipmappedArrayDestroy, &tell_mipmapped_array>(entries);
    serve_both<Passed::external, CUexternalMemory, served_cuImportExternalMemory,
               served_cuDestroyExternalMemory, &tell_external>(entries);
    std::atexit(&say_at_exit);
}

} // namespace emm::run
