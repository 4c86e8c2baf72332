#include "call.h"
#include "capture.h"
#include "graph_memory.h"
#include "pool.h"
#include "share.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>

namespace simcuda {
namespace {

// The stream already waits for the work of the memory's earlier owners.
void give_out(Pool &pool, Stream &stream, uint64_t size, CUdeviceptr *ret_address) {
    auto part = pool.take(Device::rounded_small(size), stream);
    expect(part.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
    Region region;
    region.start = pool.device->window + part->offset;
    region.size = size;
    region.kind = Kind::pooled;
    region.device = pool.device;
    region.context = &root_of(*stream.context);
    region.store = pool.store;
    region.offset = part->offset;
    region.pool = &pool;
    sim().regions.add(region);
    stream.follow(part->from.clock);
    const Span span{pool.store, region.offset, size, region.start};
    enqueue_task(stream, {nullptr, false, {{span, true}}}, part->from.work);
    *ret_address = region.start;
}

void give_to_graph(const Pool &pool, Stream &stream, uint64_t size, CUdeviceptr *ret_address) {
    Graph &graph = *sim().graphs.find(stream.capture->graph);
    const Region *region = take_for_graph(graph, *pool.device, size);
    expect(region, CUDA_ERROR_OUT_OF_MEMORY);
    add_node(stream, bind_write(*region));
    *ret_address = region->start;
}

void allocate(CUdeviceptr *ret_address, size_t size, Pool *pool, CUstream handle) {
    Stream &stream = find_stream(handle);
    check_capture(stream);
    pool = pool ? pool : stream.context->device->current_pool;
    expect(ret_address && !pool->imported);
    if (size == 0) {
        *ret_address = 0;
        return;
    }
    expect(size <= pool->device->capacity, CUDA_ERROR_OUT_OF_MEMORY);
    if (stream.capture) {
        give_to_graph(*pool, stream, size, ret_address);
        return;
    }
    check_unsafe_call();
    give_out(*pool, stream, size, ret_address);
}

void free_of_graph(Stream &stream, CUdeviceptr start) {
    Region &region = *sim().regions.at(start);
    if (stream.capture && !free_in_graph(*sim().graphs.find(stream.capture->graph), region)) {
        fail_capture(*stream.capture, CUDA_ERROR_INVALID_VALUE);
    }
    if (!stream.capture && !region.live) {
        refuse(misuse("%s, which belongs to a graph: no launch has given it to the program",
                      sim().regions.describe(start).c_str()));
    }
    enqueue(stream, bind_write(region));
    if (!stream.capture) {
        free_graph_memory(region, &stream);
    }
}

void free_on(Stream &stream, CUdeviceptr start) {
    const Region region = *sim().regions.at(start);
    if (stream.capture && region.kind != Kind::graph) {
        fail_capture(*stream.capture, CUDA_ERROR_INVALID_VALUE);
    }
    if (!stream.capture) {
        check_unsafe_call();
    }
    if (region.kind == Kind::graph) {
        free_of_graph(stream, start);
        return;
    }
    enqueue(stream, bind_write(region));
    sim().regions.remove(start, this_thread.call);
    if (region.kind == Kind::device) {
        stream.tail = sim().work.add([=] { give_to_device(region); }, false, {stream.tail});
    } else if (region.kind == Kind::pooled) {
        region.pool->give(region.offset, Device::rounded_small(region.size), stream.clock,
                          {stream.tail});
    } else if (region.kind == Kind::imported) {
        --region.pool->opened;
    }
}

struct PointerName {
    uint64_t magic, pool, offset, size;
};
constexpr uint64_t pointer_magic = 0x7274706d6973; // "simptr"

// With driver 580, importing a larger allocation of a pool ends the process.
constexpr uint64_t largest_importable = uint64_t(4) << 30;

Pool *find_imported(const Store *store, uint64_t id) {
    for (const auto &pool : sim().pools) {
        if (pool->imported && !pool->dying && pool->store == store && pool->id == id) {
            return pool.get();
        }
    }
    return nullptr;
}

static_assert(sizeof(PointerName) <= sizeof(CUmemPoolPtrExportData));

// The figures of a pool that a program may read and set. The threshold can be set to any value. A
// highest value can be set to 0 only, and then becomes the present value.
struct Amount {
    CUmemPool_attribute attribute;
    uint64_t Pool::*value;
    uint64_t Pool::*now = nullptr;
};
constexpr Amount amounts[] = {
    {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &Pool::threshold},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &Pool::reserved},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &Pool::reserved_high, &Pool::reserved},
    {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &Pool::used},
    {CU_MEMPOOL_ATTR_USED_MEM_HIGH, &Pool::used_high, &Pool::used},
};

const Amount &find_amount(CUmemPool_attribute attribute) {
    const auto *const found =
        std::find_if(std::begin(amounts), std::end(amounts),
                     [=](const Amount &each) { return each.attribute == attribute; });
    expect(found != std::end(amounts));
    return *found;
}

// CUDA 13 also has pools of host and managed memory; here a location is a device.
void check_location(const CUmemLocation *location, CUmemAllocationType type) {
    expect(location);
    expect(type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
           CUDA_ERROR_NOT_SUPPORTED);
}

} // namespace

void api::mem_alloc_async(CUdeviceptr *dptr, size_t bytesize, CUstream h_stream) {
    allocate(dptr, bytesize, nullptr, h_stream);
}

void api::mem_alloc_from_pool_async(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                    CUstream h_stream) {
    Pool &found = find_pool(pool);
    allocate(dptr, bytesize, &found, h_stream);
}

void api::mem_free_async(CUdeviceptr dptr, CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    check_capture(stream);
    expect(dptr != 0);
    const Region *region = sim().regions.at(dptr);
    if (!region || (region->kind != Kind::graph && region->kind != Kind::device && !region->pool)) {
        refuse(misuse("%s, which is not what cuMemAllocAsync or cuMemAlloc gave",
                      sim().regions.describe(dptr).c_str()));
    }
    free_on(stream, dptr);
}

void api::mem_pool_create(CUmemoryPool *pool, const CUmemPoolProps *pool_props) {
    expect(pool && pool_props && pool_props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           pool_props->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    Device *const device = device_at(pool_props->location.id);
    expect(device);
    const auto types = static_cast<unsigned>(pool_props->handleTypes);
    expect(!(types & ~unsigned(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)),
           CUDA_ERROR_NOT_SUPPORTED);
    Pool *const made = make_pool(*device, types);
#if CUDA_VERSION >= 12020
    if (pool_props->maxSize != 0) {
        made->most = pool_props->maxSize;
    }
#endif
    *pool = made->handle;
}

void api::mem_pool_destroy(CUmemoryPool pool) {
    Pool &found = find_pool(pool);
    expect(!found.is_default && found.opened == 0);
    if (found.device->current_pool == &found) {
        found.device->current_pool = found.device->default_pool;
    }
    sim().pool_handles.erase(pool);
    found.dying = true;
    trim_pools();
}

void api::mem_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    Pool &found = find_pool(pool);
    expect(value);
    if (found.settings.count(attr)) {
        std::memcpy(&found.settings[attr], value, sizeof(int));
        return;
    }
    uint64_t wanted;
    std::memcpy(&wanted, value, sizeof wanted);
    const Amount &amount = find_amount(attr);
    expect(amount.now || attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    found.*amount.value = amount.now ? found.*amount.now : wanted;
    expect(!amount.now || wanted == 0);
}

void api::mem_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    Pool &found = find_pool(pool);
    expect(value);
    if (found.settings.count(attr)) {
        std::memcpy(value, &found.settings[attr], sizeof(int));
        return;
    }
    const uint64_t amount = found.*find_amount(attr).value;
    std::memcpy(value, &amount, sizeof amount);
}

void api::mem_pool_trim_to(CUmemoryPool pool, size_t min_bytes_to_keep) {
    Pool &found = find_pool(pool);
    check_unsafe_call();
    found.trim(min_bytes_to_keep);
}

void api::mem_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    Pool &found = find_pool(pool);
    expect(map);
    for (size_t i = 0; i < count; ++i) {
        const Device *const device = device_at(map[i].location.id);
        const bool none = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        expect(map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && device &&
               (device != found.device || !none));
        expect(device == found.device || sim().options.peers, CUDA_ERROR_INVALID_DEVICE);
        const uint64_t bit = uint64_t(1) << device->ordinal;
        found.access = none ? found.access & ~bit : found.access | bit;
    }
}

void api::mem_pool_get_access(CUmemAccess_flags *flags, CUmemoryPool mem_pool,
                              CUmemLocation *location) {
    Pool &found = find_pool(mem_pool);
    expect(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    const Device *const device = device_at(location->id);
    expect(device);
    *flags = device == found.device || (found.access >> device->ordinal & 1)
                 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void api::mem_pool_export_to_shareable_handle(void *handle_out, CUmemoryPool pool,
                                              CUmemAllocationHandleType handle_type,
                                              unsigned long long flags) {
    Pool &found = find_pool(pool);
    expect(handle_out && flags == 0 && !found.imported &&
           handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           (found.handle_types & handle_type));
    if (found.ticket == 0) {
        const Ticket ticket = {0, Ticket::Kind::pool, found.device->ordinal, found.id, 0,
                               0, found.handle_types};
        const uint64_t place = new_ticket_place(*found.store);
        expect(write_ticket(*found.store, place, ticket), CUDA_ERROR_UNKNOWN);
        found.ticket = place;
    }
    const int descriptor = make_share(*found.store, found.ticket);
    expect(descriptor >= 0, CUDA_ERROR_UNKNOWN);
    std::memcpy(handle_out, &descriptor, sizeof descriptor);
}

// A process has one import of a pool, even if it imports it several times; one destroy ends the
// import.
void api::mem_pool_import_from_shareable_handle(CUmemoryPool *pool_out, void *handle,
                                                CUmemAllocationHandleType handle_type,
                                                unsigned long long flags) {
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
    Ticket ticket;
    Store *store = nullptr;
    uint64_t place = 0;
    expect(pool_out && flags == 0 && handle_type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           open_share(descriptor, Ticket::Kind::pool, ticket, store, place));
    Device *const device = device_at(ticket.device);
    expect(device);
    Pool *pool = find_imported(store, ticket.id);
    if (!pool) {
        pool = make_pool(*device, static_cast<unsigned>(ticket.handle_types));
        pool->id = ticket.id;
        pool->store = store;
        pool->imported = true;
    }
    *pool_out = pool->handle;
}

// Exports whole allocations only, and only after the pool itself has been exported.
void api::mem_pool_export_pointer(CUmemPoolPtrExportData *share_data_out, CUdeviceptr ptr) {
    const Region *region = sim().regions.at(ptr);
    expect(share_data_out && region && region->start == ptr && region->kind == Kind::pooled &&
           region->pool->ticket != 0);
    const PointerName name = {pointer_magic, region->pool->id, region->offset, region->size};
    memset(share_data_out, 0, sizeof *share_data_out);
    std::memcpy(share_data_out, &name, sizeof name);
}

void api::mem_pool_import_pointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                  CUmemPoolPtrExportData *share_data) {
    Pool &found = find_pool(pool);
    expect(ptr_out && share_data);
    PointerName name;
    std::memcpy(&name, share_data, sizeof name);
    expect(name.magic == pointer_magic && name.pool == found.id && is_foreign(found.store) &&
           name.offset + name.size <= found.store->size);
    if (name.size > largest_importable) {
        refuse(misuse("an allocation of %llu bytes: a real driver crashes beyond %llu",
                      static_cast<unsigned long long>(name.size),
                      static_cast<unsigned long long>(largest_importable)));
    }
    const auto start = reinterpret_cast<CUdeviceptr>(found.store->at(name.offset));
    if (sim().regions.at(start)) { // the first cuMemFree ends it
        *ptr_out = start;
        return;
    }
    Region region;
    region.start = start;
    region.size = name.size;
    region.kind = Kind::imported;
    region.device = found.device;
    region.store = found.store;
    region.offset = name.offset;
    region.pool = &found;
    expect(!sim().regions.first_in(region.start, region.size), CUDA_ERROR_ALREADY_MAPPED);
    ++found.opened;
    *ptr_out = sim().regions.add(region).start;
}

void api::device_get_default_mem_pool(CUmemoryPool *pool_out, CUdevice dev) {
    tell(pool_out, find_device(dev).default_pool->handle);
}

void api::device_get_mem_pool(CUmemoryPool *pool, CUdevice dev) {
    tell(pool, find_device(dev).current_pool->handle);
}

void api::device_set_mem_pool(CUdevice dev, CUmemoryPool pool) {
    Device &device = find_device(dev);
    Pool &found = find_pool(pool);
    expect(found.device == &device);
    device.current_pool = &found;
}

void api::mem_get_default_mem_pool(CUmemoryPool *pool_out, CUmemLocation *location,
                                   CUmemAllocationType type) {
    check_location(location, type);
    device_get_default_mem_pool(pool_out, location->id);
}

void api::mem_get_mem_pool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    check_location(location, type);
    device_get_mem_pool(pool, location->id);
}

void api::mem_set_mem_pool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    check_location(location, type);
    device_set_mem_pool(location->id, pool);
}

} // namespace simcuda
