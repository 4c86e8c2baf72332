// The entries of cuMemCreate's memory in a program that can be paused: the program's handles are
// emm's (physical.h).
#include "physical_piece.h"

namespace emm::run {
namespace {

using Handle = CUmemGenericAllocationHandle;

PhysicalMemory &physical() {
    return server().physical;
}

CUresult physical_create(Handle *ret_handle, size_t size, const CUmemAllocationProp *properties,
                         unsigned long long flags) {
    const Turn turn;
    const auto ask = [&] {
        return ask_driver<&physical_create>(served_cuMemCreate, ret_handle, size, properties,
                                            flags);
    };
    if (!turn.is_programs() || !properties) {
        return ask();
    }
    const bool is_devices = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const emm_driver_memory wanted = {sizeof(emm_driver_memory),
                                      is_devices ? properties->location.id : -1,
                                      EMM_MEMORY_PHYSICAL,
                                      0,
                                      size,
                                      nullptr};
    emm_status status = EMM_OK;
    server().contexts.current(status); // makes a record, by which a pause knows the context
    Charged charged(true, wanted);
    const CUresult result = charged.call(ask);
    if (result == CUDA_SUCCESS) {
        *ret_handle = physical().made(*ret_handle, size, *properties, flags, charged.id());
        charged.keep(nullptr);
    }
    return result;
}

CUresult physical_release(Handle handle) {
    const Turn turn;
    return turn.is_programs() && physical().release(handle)
               ? CUDA_SUCCESS
               : ask_driver<&physical_release>(served_cuMemRelease, handle);
}

CUresult physical_map(CUdeviceptr address, size_t size, size_t offset, Handle handle,
                      unsigned long long flags) {
    const Turn turn;
    const Handle drivers = turn.is_programs() ? physical().drivers(handle) : handle;
    const CUresult result =
        ask_driver<&physical_map>(served_cuMemMap, address, size, offset, drivers, flags);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().allocations.forget_within(address, size);
        physical().mapped(address, size, offset, handle);
    }
    return result;
}

CUresult physical_unmap(CUdeviceptr address, size_t size) {
    const Turn turn;
    const auto ask = [&] { return ask_driver<&physical_unmap>(served_cuMemUnmap, address, size); };
    return turn.is_programs() ? physical().unmap(address, size, ask) : ask();
}

CUresult physical_retain(Handle *ret_handle, void *pointer) {
    const Turn turn;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    if (turn.is_programs() && ret_handle) {
        if (server().refuses_handle_at(address)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (physical().retain(address, *ret_handle)) {
            return CUDA_SUCCESS;
        }
    }
    return ask_driver<&physical_retain>(served_cuMemRetainAllocationHandle, ret_handle, pointer);
}

CUresult physical_export(void *ret_shareable, Handle handle, CUmemAllocationHandleType type,
                         unsigned long long flags) {
    const Turn turn;
    const Handle drivers = turn.is_programs() ? physical().drivers(handle) : handle;
    const CUresult result = ask_driver<&physical_export>(served_cuMemExportToShareableHandle,
                                                         ret_shareable, drivers, type, flags);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        physical().stays(handle, "exported by cuMemExportToShareableHandle");
    }
    return result;
}

// The process itself may have exported the memory. The driver then gives the same handle again, and
// emm keeps only one of them.
CUresult physical_import(Handle *ret_handle, void *shareable, CUmemAllocationHandleType type) {
    const Turn turn;
    const CUresult result = ask_driver<&physical_import>(served_cuMemImportFromShareableHandle,
                                                         ret_handle, shareable, type);
    const Handle own =
        turn.is_programs() && result == CUDA_SUCCESS ? physical().imported(*ret_handle) : 0;
    if (own != 0) {
        release_drivers(*ret_handle);
        *ret_handle = own;
    }
    return result;
}

CUresult physical_properties(CUmemAllocationProp *ret_properties, Handle handle) {
    const Turn turn;
    return ask_driver<&physical_properties>(
        served_cuMemGetAllocationPropertiesFromHandle, ret_properties,
        turn.is_programs() ? physical().drivers(handle) : handle);
}

// Makes memory of the plugin stay, by an export as for cuIpcGetMemHandle. If the export fails, the
// pool is not paused.
void stays_at(CUdeviceptr address, size_t size, const char *why) {
    physical().stays_at(address, size, why);
    const Allocation found = server().own_around(address);
    emm_ipc_name name = {};
    if (found.address != 0 && server().sharing.export_memory(found, name) < 0) {
        server().outside.stays(found, why);
    }
}

CUresult physical_range_handle(void *ret_handle, CUdeviceptr address, size_t size,
                               CUmemRangeHandleType type, unsigned long long flags) {
    const Turn turn;
    if (turn.is_programs() && server().around(address).freed) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = ask_driver<&physical_range_handle>(
        served_cuMemGetHandleForAddressRange, ret_handle, address, size, type, flags);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        stays_at(address, size, "exported by cuMemGetHandleForAddressRange");
    }
    return result;
}

constexpr const char *bound = "bound to a multicast object";

// `Device`: an argument of the later forms.
template <Served entry, class... Device> struct BindMemory {
    static CUresult call(Handle multicast, Device... device, size_t offset, Handle handle,
                         size_t memory_offset, size_t size, unsigned long long flags) {
        const Turn turn;
        const Handle drivers = turn.is_programs() ? physical().drivers(handle) : handle;
        const CUresult result = ask_driver<&call>(entry, multicast, device..., offset, drivers,
                                                  memory_offset, size, flags);
        if (turn.is_programs() && result == CUDA_SUCCESS) {
            physical().stays(handle, bound);
        }
        return result;
    }
};

template <Served entry, class... Device> struct BindAddress {
    static CUresult call(Handle multicast, Device... device, size_t offset, CUdeviceptr address,
                         size_t size, unsigned long long flags) {
        const Turn turn;
        const CUresult result =
            ask_driver<&call>(entry, multicast, device..., offset, address, size, flags);
        if (turn.is_programs() && result == CUDA_SUCCESS) {
            stays_at(address, size, bound);
        }
        return result;
    }
};

template <Served entry> CUresult map_arrays(CUarrayMapInfo *list, unsigned count, CUstream stream) {
    const Turn turn;
    std::vector<CUarrayMapInfo> translated;
    for (unsigned i = 0; list && turn.is_programs() && i < count; i++) {
        translated.push_back(list[i]);
        Handle &handle = translated.back().memHandle.memHandle;
        handle = physical().drivers(handle);
    }
    const CUresult result = ask_driver<&map_arrays<entry>>(
        entry, translated.empty() ? list : translated.data(), count, stream);
    for (size_t i = 0; result == CUDA_SUCCESS && i < translated.size(); i++) {
        physical().stays(list[i].memHandle.memHandle, "mapped by cuMemMapArrayAsync");
    }
    return result;
}

} // namespace

void serve_physical(Entries &entries) {
    entries.at[served_cuMemCreate] = entry_of<&physical_create>();
    entries.at[served_cuMemRelease] = entry_of<&physical_release>();
    entries.at[served_cuMemMap] = entry_of<&physical_map>();
    entries.at[served_cuMemUnmap] = entry_of<&physical_unmap>();
    entries.at[served_cuMemRetainAllocationHandle] = entry_of<&physical_retain>();
    entries.at[served_cuMemExportToShareableHandle] = entry_of<&physical_export>();
    entries.at[served_cuMemImportFromShareableHandle] = entry_of<&physical_import>();
    entries.at[served_cuMemGetAllocationPropertiesFromHandle] = entry_of<&physical_properties>();
    entries.at[served_cuMemGetHandleForAddressRange] = entry_of<&physical_range_handle>();
    entries.at[served_cuMulticastBindMem] =
        entry_of<&BindMemory<served_cuMulticastBindMem>::call>();
    entries.at[served_cuMulticastBindMem_v2] =
        entry_of<&BindMemory<served_cuMulticastBindMem_v2, CUdevice>::call>();
    entries.at[served_cuMulticastBindAddr] =
        entry_of<&BindAddress<served_cuMulticastBindAddr>::call>();
    entries.at[served_cuMulticastBindAddr_v2] =
        entry_of<&BindAddress<served_cuMulticastBindAddr_v2, CUdevice>::call>();
    entries.at[served_cuMemMapArrayAsync] = entry_of<&map_arrays<served_cuMemMapArrayAsync>>();
    entries.at[served_cuMemMapArrayAsync_ptsz] =
        entry_of<&map_arrays<served_cuMemMapArrayAsync_ptsz>>();
}

} // namespace emm::run
