#include "share.h"

#include "call.h"
#include "capture.h"
#include "pool.h"
#include "simulator.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace simcuda {
namespace {

constexpr uint64_t handle_magic = 0x6370696d6973; // "simipc"

// The content of a CUipcMemHandle: the whole block, and the place of the memory's file at its
// exporter.
struct Name {
    uint64_t magic;
    int32_t process, descriptor;
    uint64_t started; // when the exporter did, for process ids come back
    int32_t device, reserved;
    uint64_t offset, size;
    uint64_t id;
};
static_assert(sizeof(Name) <= sizeof(CUipcMemHandle));

// The start time of a process, from the kernel; 0: no such process.
uint64_t start_of(int32_t process) {
    char path[64], text[1024] = {};
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *rest = length ? strrchr(text, ')') : nullptr;
    unsigned long long started = 0;
    return rest && sscanf(rest + 1,
                          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%*d %*d %llu",
                          &started) == 1
               ? started
               : 0;
}

Store *open_store(const Name &name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.descriptor);
    const int descriptor = open(path, O_RDWR | O_CLOEXEC);
    return descriptor < 0 ? nullptr : store_of(descriptor);
}

// On each device, one context at a time may use an export of another process.
void open_again(Region &region, Context &context, uint64_t id, CUdeviceptr *ret_address) {
    for (const auto &[opener, count] : region.opens) {
        expect(opener == &context || opener->device != context.device, CUDA_ERROR_ALREADY_MAPPED);
    }
    // Otherwise the exporter has freed the memory that is open here.
    expect(region.exporter_id == id, CUDA_ERROR_ALREADY_MAPPED);
    ++region.opens[&context];
    region.access |= uint64_t(1) << context.device->ordinal;
    *ret_address = region.start;
}

void open_first(const Name &name, Store *store, Context &context, CUdeviceptr *ret_address) {
    Region region;
    region.start = reinterpret_cast<CUdeviceptr>(store->at(name.offset));
    region.size = name.size;
    region.kind = Kind::imported;
    region.device = sim().devices[static_cast<size_t>(name.device)].get();
    region.context = &context;
    region.store = store;
    region.offset = name.offset;
    region.exporter_id = name.id;
    region.opens[&context] = 1;
    region.access = uint64_t(1) << context.device->ordinal;
    *ret_address = sim().regions.add(region).start;
}

} // namespace

bool leave_import(Region &region, Context *context) {
    region.opens.erase(context);
    region.context = region.opens.empty() ? nullptr : region.opens.begin()->first;
    return region.context;
}

void close_import(CUdeviceptr start) {
    const Region region = *sim().regions.at(start);
    retire_bytes(*region.store, region.offset, region.size, region.start);
    sim().regions.remove(start, this_thread.call);
    if (region.pool) {
        --region.pool->opened;
    }
}

void api::ipc_get_mem_handle(CUipcMemHandle *p_handle, CUdeviceptr dptr) {
    const Region *region = sim().regions.around(dptr);
    expect(p_handle && region && region->kind == Kind::device);
    const Name name = {handle_magic,
                       getpid(),
                       region->store->fd,
                       start_of(getpid()),
                       region->device->ordinal,
                       0,
                       region->offset,
                       region->size,
                       region->id};
    memset(p_handle, 0, sizeof *p_handle);
    std::memcpy(p_handle, &name, sizeof name);
}

void api::ipc_open_mem_handle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags) {
    Context &context = current_root();
    check_unsafe_call();
    Name name;
    std::memcpy(&name, &handle, sizeof name);
    expect(pdptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && name.magic == handle_magic);
    expect(name.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    const Device *const device = device_at(name.device);
    expect(device && start_of(name.process) == name.started);
    expect(device == context.device || sim().options.peers, CUDA_ERROR_MAP_FAILED);
    Store *store = open_store(name);
    expect(store && name.offset + name.size <= store->size);
    Region *open = sim().regions.around(reinterpret_cast<CUdeviceptr>(store->at(name.offset)));
    open ? open_again(*open, context, name.id, pdptr) : open_first(name, store, context, pdptr);
}

void api::ipc_close_mem_handle(CUdeviceptr dptr) {
    Region *region = sim().regions.at(dptr);
    check_unsafe_call();
    if (!region || region->kind != Kind::imported || region->pool) {
        refuse(misuse("%s, which is not what cuIpcOpenMemHandle gave",
                      sim().regions.describe(dptr).c_str()));
    }
    Context *context = nullptr;
    result_of([&] { context = &current_root(); });
    context = region->opens.count(context) ? context : region->opens.begin()->first;
    if (--region->opens[context] == 0 && !leave_import(*region, context)) {
        close_import(dptr);
    }
}

} // namespace simcuda
