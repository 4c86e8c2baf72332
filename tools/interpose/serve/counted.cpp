// Memory of the driver that no plugin serves. Each call goes to the driver; the device's account is
// charged with the objects while they live.
#include "charged.h"
#include "helper_thread.h"

#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace emm::run {
namespace {

// The key of an object: its handle, or its address.
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

constexpr CUdevice no_device = -1;

CUdevice current_device() {
    CUdevice device = no_device;
    return server().driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : no_device;
}

CUdevice device_at(const CUmemLocation &location) {
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : no_device;
}

// For calls that lack arguments: the driver refuses these calls.
constexpr emm_driver_memory nothing = {sizeof(emm_driver_memory), no_device, 0, 0, 0, nullptr};

emm_driver_memory charge(CUdevice device, uint32_t kind, uint64_t bytes) {
    return {sizeof(emm_driver_memory), device, kind, 0, bytes, nullptr};
}

CUmemoryPool pool_made(uint32_t kind, uint64_t key) {
    return kind == EMM_MEMORY_POOL ? reinterpret_cast<CUmemoryPool>(key) : nullptr;
}

// A call that makes an object. The charge is made before; `key` names the object once the call has
// succeeded.
template <class Call, class Key>
CUresult make(const Turn &turn, Passed kind, CUcontext context, const emm_driver_memory &wanted,
              Call call, Key key) {
    Charged charged(turn.is_programs(), wanted);
    const CUresult result = charged.call(call);
    if (result == CUDA_SUCCESS && charged.id() != 0) {
        server().passed_on.add(kind, key(), {charged.id(), context, 1, wanted.device});
        charged.keep(pool_made(wanted.kind, key()));
    }
    return result;
}

// Ends the charge of an object that the driver gives back. The charge is taken out before the call,
// because another thread may get the handle.
template <class Call> CUresult end(Passed kind, uint64_t key, Call call) {
    const Turn turn;
    PassedOn &passed = server().passed_on;
    const PassedOn::Item item =
        turn.is_programs() ? passed.release(kind, key) : PassedOn::Item{0, nullptr, 0};
    const CUresult result = call();
    if (result != CUDA_SUCCESS) {
        passed.put_back(kind, key, item);
    } else if (item.references != 0) {
        emm_give_driver_memory(item.charge);
    }
    return result;
}

// --- objects that are made and destroyed by handle ---------------------------------------------

// The charge for an object, from the arguments that follow the handle.
emm_driver_memory tell_physical(size_t size, const CUmemAllocationProp *properties,
                                unsigned long long) {
    return properties ? charge(device_at(properties->location), EMM_MEMORY_PHYSICAL, size)
                      : nothing;
}

emm_driver_memory tell_array_3d(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    return descriptor ? charge(current_device(), EMM_MEMORY_ARRAY, array_bytes(*descriptor))
                      : nothing;
}

emm_driver_memory tell_array(const CUDA_ARRAY_DESCRIPTOR *descriptor) {
    if (!descriptor) {
        return nothing;
    }
    CUDA_ARRAY3D_DESCRIPTOR same = {};
    same.Width = descriptor->Width;
    same.Height = descriptor->Height;
    same.Format = descriptor->Format;
    same.NumChannels = descriptor->NumChannels;
    return tell_array_3d(&same);
}

emm_driver_memory tell_mipmapped_array(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels) {
    return descriptor ? charge(current_device(), EMM_MEMORY_MIPMAPPED_ARRAY,
                               mipmapped_bytes(*descriptor, levels))
                      : nothing;
}

emm_driver_memory tell_external(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor) {
    return descriptor ? charge(current_device(), EMM_MEMORY_EXTERNAL, descriptor->size) : nothing;
}

emm_driver_memory tell_pool(const CUmemPoolProps *properties) {
    return properties ? charge(device_at(properties->location), EMM_MEMORY_POOL, 0) : nothing;
}

// Physical memory outlives contexts.
template <Served entry, Passed kind, class Handle, auto told> struct Create;
template <Served entry, Passed kind, class Handle, class... More,
          emm_driver_memory (*told)(More...)>
struct Create<entry, kind, Handle, told> {
    static CUresult call(Handle *ret_handle, More... more) {
        const Turn turn;
        constexpr bool outlives = kind == Passed::physical;
        return make(
            turn, kind, outlives ? nullptr : current_context(), told(more...),
            [&] { return ask_driver<&call>(entry, ret_handle, more...); },
            [&] { return key_of(*ret_handle); });
    }
};

template <Served entry, Passed kind, class Handle> CUresult destroy(Handle handle) {
    return end(kind, key_of(handle),
               [&] { return ask_driver<&destroy<entry, kind, Handle>>(entry, handle); });
}

template <Passed kind, class Handle, Served create_entry, Served destroy_entry, auto told>
void serve_both(Entries &entries) {
    entries.at[create_entry] = entry_of<&Create<create_entry, kind, Handle, told>::call>();
    entries.at[destroy_entry] = entry_of<&destroy<destroy_entry, kind, Handle>>();
}

CUresult pool_create(CUmemoryPool *ret_pool, const CUmemPoolProps *properties) {
    const Turn turn;
    const CUresult result = make(
        turn, Passed::pool, nullptr, tell_pool(properties),
        [&] { return ask_driver<&pool_create>(served_cuMemPoolCreate, ret_pool, properties); },
        [&] { return key_of(*ret_pool); });
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().own_pools.made(*ret_pool, *properties);
    }
    return result;
}

// The account asks its pools for their sizes. It stops doing so before the driver destroys a pool;
// a pool that the driver refuses to destroy is charged again.
CUresult pool_destroy(CUmemoryPool pool) {
    const Turn turn;
    const auto destroy = [&] { return ask_driver<&pool_destroy>(served_cuMemPoolDestroy, pool); };
    if (!turn.is_programs()) {
        return destroy();
    }
    // This comes before the driver's call, because afterwards another thread may get the handle.
    const std::vector<CUdevice> devices = server().pools.forget(pool);
    const uint64_t own = server().own_pools.id_of(pool);
    const PassedOn::Item item = server().passed_on.release(Passed::pool, key_of(pool));
    emm_give_driver_memory(item.charge);
    const CUresult result = destroy();
    if (result != CUDA_SUCCESS && item.references != 0) {
        Charged again(true, charge(item.device, EMM_MEMORY_POOL, 0));
        server().passed_on.add(Passed::pool, key_of(pool), {again.id(), nullptr, 1, item.device});
        again.keep(pool);
    }
    for (size_t i = 0; result != CUDA_SUCCESS && i < devices.size(); i++) {
        server().pools.set(devices[i], pool);
    }
    if (result == CUDA_SUCCESS && own != 0) {
        server().own_pools.ended(own);
        server().give_back_of_ended_pools();
    }
    return result;
}

// --- mappings ----------------------------------------------------------------------------------

// A mapping keeps the memory, so its handle may be released first.
void mapped(CUdeviceptr ptr, size_t size, size_t, CUmemGenericAllocationHandle handle,
            unsigned long long) {
    server().allocations.forget_within(ptr, size);
    const uint64_t id = server().passed_on.charge_of(Passed::physical, handle);
    if (id != 0 && emm_keep_driver_memory(id, nullptr) >= 0) {
        server().passed_on.add(Passed::mapped, ptr, {id});
    }
}

// If the driver refuses a range, all of it stays mapped.
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
        } else {
            emm_give_driver_memory(item.charge);
        }
    }
    return result;
}

// --- the line at the end -----------------------------------------------------------------------

void add(emm_memory_row &sum, const emm_memory_row &row) {
    sum.live += row.live;
    sum.bytes += row.bytes;
    sum.peak_bytes += row.peak_bytes;
    sum.made += row.made;
}

// "NAME live=N bytes=N peak_bytes=N made=N" for each kind that was made, between semicolons; "" if
// no object was made.
std::string line_of_all_devices() {
    static constexpr const char *names[] = {"block",           "physical",   "pool",    "array",
                                            "mipmapped_array", "graph_node", "external"};
    emm_memory_row sums[std::size(names)] = {};
    auto account = sized<emm_device_account>();
    for (int32_t device = 0; emm_get_device_account(device, &account) >= 0; device++) {
        for (size_t kind = 0; kind < std::size(names); kind++) {
            add(sums[kind], account.program[kind]);
        }
    }
    std::string line;
    for (size_t kind = 0; kind < std::size(names); kind++) {
        if (sums[kind].made != 0) {
            line += (line.empty() ? "" : "; ") + std::string(names[kind]) +
                    " live=" + std::to_string(sums[kind].live) +
                    " bytes=" + std::to_string(sums[kind].bytes) +
                    " peak_bytes=" + std::to_string(sums[kind].peak_bytes) +
                    " made=" + std::to_string(sums[kind].made);
        }
    }
    return line;
}

void say_line() {
    if (const std::string line = line_of_all_devices(); !line.empty()) {
        emm_log(EMM_LOG_INFO, ("emm run: the driver's own memory: " + line).c_str());
    }
}

HelperThread *teller = nullptr; // made if the log shows the line; never destroyed

// exit() in a signal handler may interrupt a call that holds locks of the driver or of emm. So
// another thread makes the line, and the process waits for a bounded time.
void say_at_exit() {
    if (Charged::is_any_kept() && !Turn::is_forked_child()) {
        teller->run(&say_line);
    }
}

bool log_shows_info() {
    const char *const log = secure_getenv("EMM_LOG");
    const std::string_view text = log ? log : "";
    return text.starts_with("info") || text.starts_with("debug");
}

} // namespace

void serve_counted(Entries &entries) {
    serve_both<Passed::physical, CUmemGenericAllocationHandle, served_cuMemCreate,
               served_cuMemRelease, &tell_physical>(entries);
    entries.at[served_cuMemPoolCreate] = entry_of<&pool_create>();
    entries.at[served_cuMemPoolDestroy] = entry_of<&pool_destroy>();
    watch<served_cuMemMap, &mapped>(entries);
    entries.at[served_cuMemUnmap] = entry_of<&mem_unmap>();
    serve_both<Passed::array, CUarray, served_cuArray3DCreate_v2, served_cuArrayDestroy,
               &tell_array_3d>(entries);
    entries.at[served_cuArrayCreate_v2] =
        entry_of<&Create<served_cuArrayCreate_v2, Passed::array, CUarray, &tell_array>::call>();
    serve_both<Passed::array, CUmipmappedArray, served_cuMipmappedArrayCreate,
               served_cuMipmappedArrayDestroy, &tell_mipmapped_array>(entries);
    serve_both<Passed::external, CUexternalMemory, served_cuImportExternalMemory,
               served_cuDestroyExternalMemory, &tell_external>(entries);
    if (log_shows_info()) {
        constexpr OuterLock none = {[] { return 0; }, [](int) {}};
        teller = new HelperThread(none, std::chrono::seconds(1));
        std::atexit(&say_at_exit);
    }
}

} // namespace emm::run
