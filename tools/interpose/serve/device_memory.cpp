// Device memory: allocations with and without a stream, pitched and managed memory.
#include "charged.h"

#include <cstdint>
#include <mutex>

namespace emm::run {
namespace {

constexpr size_t pitch_bytes = 512; // the driver's rows begin at multiples of it

// Fills memory on a stream of the context. With EMM_STREAM_UNORDERED the caller's next call, on any
// stream, finds the memory zero. The program's own streams are not used: they may hold long work,
// or capture.
[[gnu::noinline]] CUresult fill_with_zero(const Allocation &made, emm_stream stream) {
    const Driver &driver = server().driver;
    if (stream != EMM_STREAM_UNORDERED) {
        return driver.cuMemsetD8Async(made.address, 0, made.size, stream);
    }
    const Relaxed relaxed(driver);
    const CUstream own = server().streams.own_in(made.context, Streams::Own::fills);
    const CUresult result =
        own ? driver.cuMemsetD8Async(made.address, 0, made.size, own) : CUDA_ERROR_OUT_OF_MEMORY;
    return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(own) : result;
}

[[gnu::noinline]] CUresult give_back(Allocation made, emm_stream stream, CUresult result) {
    if (made.kind == Kind::managed) {
        emm_memfreemanaged(made.context, made.address, made.size, stream);
    } else {
        emm_memfree(made.manager(), made.address, made.size, stream);
    }
    return result;
}

// The driver has given memory to the program itself. Forgets emm's former allocations there.
template <class... More> void driver_gave(CUdeviceptr *ret_ptr, size_t bytes, More...) {
    server().allocations.forget_within(*ret_ptr, bytes);
}

// Inlined; rare cases get the record by value. So only the table has the record in memory.
[[gnu::always_inline]] inline CUresult keep(const Allocation &made, emm_stream stream,
                                            CUdeviceptr *ret_ptr) {
    if (server().options.zero && made.kind != Kind::managed) [[unlikely]] {
        const CUresult result = fill_with_zero(made, stream);
        if (result != CUDA_SUCCESS) {
            return give_back(made, stream, result);
        }
    }
    if (!server().allocations.insert(made)) [[unlikely]] {
        return give_back(made, stream, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ret_ptr = made.address;
    return CUDA_SUCCESS;
}

// `pool`: emm's for a pool of the program's own; NULL: the context's own manager.
[[gnu::always_inline]] inline Answer allocate(emm_context *context, size_t bytes, emm_stream stream,
                                              Kind kind, CUdeviceptr *ret_ptr,
                                              emm_context *pool = nullptr) {
    server().give_back_of_ended_graphs();
    emm_deviceptr ptr = 0;
    const emm_status status = allocate_with_release(context, bytes, Memory::device, [&] {
        return emm_memalloc(pool ? pool : context, bytes, stream, &ptr);
    });
    if (status < 0) {
        return unserved(status);
    }
    return keep({ptr, bytes, context, 0, 0, kind, false, false, false, pool}, stream, ret_ptr);
}

Answer allocate_unordered(size_t bytes, CUdeviceptr *ret_ptr) {
    return in_current([&](emm_context *context) {
        return allocate(context, bytes, EMM_STREAM_UNORDERED, Kind::device, ret_ptr);
    });
}

Answer mem_alloc(CUdeviceptr *ret_ptr, size_t bytes) {
    return ret_ptr && bytes != 0 ? allocate_unordered(bytes, ret_ptr) : Answer();
}

Answer mem_alloc_pitch(CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t width, size_t height,
                       unsigned element) {
    const bool is_valid = ret_ptr && ret_pitch && width != 0 && height != 0 &&
                          (element == 4 || element == 8 || element == 16) &&
                          width <= SIZE_MAX - pitch_bytes;
    const size_t pitch = (width + pitch_bytes - 1) / pitch_bytes * pitch_bytes;
    if (!is_valid || height > SIZE_MAX / pitch) {
        return {};
    }
    const Answer answer = allocate_unordered(pitch * height, ret_ptr);
    if (answer && *answer == CUDA_SUCCESS) {
        *ret_pitch = pitch;
    }
    return answer;
}

void driver_gave_rows(CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t, size_t height, unsigned) {
    driver_gave(ret_ptr, *ret_pitch * height);
}

Answer mem_alloc_managed(CUdeviceptr *ret_ptr, size_t bytes, unsigned flags) {
    if (!ret_ptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return {};
    }
    return in_current([&](emm_context *context) -> Answer {
        emm_deviceptr ptr = 0;
        constexpr size_t any = 0; // managed memory may be larger than the device
        const emm_status status = allocate_with_release(context, any, Memory::device, [&] {
            return emm_memallocmanaged(context, bytes, flags, &ptr);
        });
        if (status < 0) {
            return status == EMM_E_NOT_SUPPORTED ? Answer() : unserved(status);
        }
        return keep({ptr, bytes, context, 0, 0, Kind::managed}, EMM_STREAM_UNORDERED, ret_ptr);
    });
}

// Gives memory of the graph if the stream does capture.
[[gnu::noinline]] Answer allocate_in_capture(emm_context *context, size_t bytes, CUstream stream,
                                             CUdeviceptr *ret_ptr) {
    GraphMemory &graphs = server().graph_memory;
    Capture capture;
    const CUresult result = graphs.capture_of(stream, capture);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!capture.graph) {
        return allocate(context, bytes, stream, Kind::ordered, ret_ptr);
    }
    const CUresult prepared = graphs.prepare(capture);
    if (prepared != CUDA_SUCCESS) {
        return prepared;
    }
    CUdeviceptr ptr = 0;
    const Answer answer = allocate(context, bytes, stream, Kind::captured, &ptr);
    if (answer && *answer == CUDA_SUCCESS) {
        graphs.add(capture, {ptr, server().allocations.find(ptr).id});
        *ret_ptr = ptr;
    }
    return answer;
}

Answer allocate_on(emm_context *context, size_t bytes, CUstream stream, CUdeviceptr *ret_ptr) {
    return server().streams.captures(stream)
               ? allocate_in_capture(context, bytes, stream, ret_ptr)
               : allocate(context, bytes, stream, Kind::ordered, ret_ptr);
}

// `ret_own`: the program's own pool, from which the driver must allocate; NULL: no such pool.
Answer allocate_ordered(size_t bytes, CUstream stream, CUdeviceptr *ret_ptr,
                        CUmemoryPool &ret_own) {
    emm_status status = EMM_OK;
    emm_context *const context = server().streams.context_of(stream, status);
    if (!context) {
        return unserved(status);
    }
    ret_own = server().pools.own_for(context);
    return ret_own ? Answer() : allocate_on(context, bytes, stream, ret_ptr);
}

// Memory of another device than the stream's. The stream orders no work there, so the memory must
// have no outstanding work. In a graph, such allocations are the driver's.
Answer allocate_elsewhere(CUdevice device, size_t bytes, CUstream stream, CUdeviceptr *ret_ptr) {
    emm_context *const context =
        server().streams.captures(stream) ? nullptr : server().contexts.lasting_on(device);
    if (!context) {
        return {};
    }
    const Current current(server().driver, cuda_of(context));
    return current.result() == CUDA_SUCCESS
               ? allocate(context, bytes, EMM_STREAM_UNORDERED, Kind::ordered, ret_ptr)
               : Answer();
}

Answer allocate_from_default_pool(CUdevice device, size_t bytes, CUstream stream,
                                  CUdeviceptr *ret_ptr) {
    emm_status status = EMM_OK;
    emm_context *const context = server().streams.context_of(stream, status);
    if (!context) {
        return unserved(status);
    }
    return device_of_context(context) == device
               ? allocate_on(context, bytes, stream, ret_ptr)
               : allocate_elsewhere(device, bytes, stream, ret_ptr);
}

// `own`: a pool that the program made. The driver serves allocations in a graph, and pools that emm
// does not serve.
Answer allocate_in_own_pool(CUmemoryPool own, CUdeviceptr *ret_ptr, size_t bytes, CUstream stream) {
    emm_status status = EMM_OK;
    emm_context *const context =
        server().streams.captures(stream) ? nullptr : server().streams.context_of(stream, status);
    emm_context *const pool = context ? server().own_pools.manager_in(context, own) : nullptr;
    return pool ? allocate(context, bytes, stream, Kind::ordered, ret_ptr, pool) : Answer();
}

// Has the driver allocate from the pool. A block for which the pool has grown above the bound goes
// back at once. One call at a time, so that none is refused for another's growth.
template <class Call>
CUresult allocate_within_bound(const Charged &charged, CUmemoryPool pool, CUstream stream,
                               CUdeviceptr *ret_ptr, Call call) {
    if (charged.id() == 0 || server().streams.captures(stream)) {
        return call(ret_ptr);
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    CUdeviceptr ptr = 0;
    const CUresult result = call(&ptr);
    if (result == CUDA_SUCCESS && !charged.may_stay()) {
        const Relaxed relaxed(server().driver);
        if (ask_driver<&cuMemFreeAsync>(served_cuMemFreeAsync, ptr, stream) == CUDA_SUCCESS) {
            ask_driver<&cuMemPoolTrimTo>(served_cuMemPoolTrimTo, pool, size_t(0));
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS) {
        *ret_ptr = ptr;
    }
    return result;
}

// `more`: further arguments of the driver's entry, whose pool may have to grow.
template <Served entry, class... More>
Answer from_own_pool(CUmemoryPool pool, CUstream stream, CUdeviceptr *ret_ptr, size_t bytes,
                     More... more) {
    if (const Answer answer = allocate_in_own_pool(pool, ret_ptr, bytes, stream)) {
        return answer;
    }
    constexpr CUdevice any = 0; // the account knows the device of each pool
    const Charged charged(true, {sizeof(emm_driver_memory), any, EMM_MEMORY_POOL, 0, bytes, pool});
    const auto ask = [&](CUdeviceptr *ret) {
        return ask_driver<&serve_call<entry, nullptr, nullptr, CUdeviceptr *, size_t, More...>>(
            entry, ret, bytes, more...);
    };
    const CUresult result =
        charged.call([&] { return allocate_within_bound(charged, pool, stream, ret_ptr, ask); });
    if (result == CUDA_SUCCESS) {
        driver_gave(ret_ptr, bytes);
    }
    return result;
}

template <bool per_thread>
Answer mem_alloc_async(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream) {
    constexpr Served entry = per_thread ? served_cuMemAllocAsync_ptsz : served_cuMemAllocAsync;
    const CUstream named = meant<per_thread>(stream);
    CUmemoryPool own = nullptr;
    const Answer answer =
        ret_ptr && bytes != 0 ? allocate_ordered(bytes, named, ret_ptr, own) : Answer();
    return own ? from_own_pool<entry>(own, named, ret_ptr, bytes, stream) : answer;
}

template <bool per_thread>
Answer mem_alloc_from_pool_async(CUdeviceptr *ret_ptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    constexpr Served entry =
        per_thread ? served_cuMemAllocFromPoolAsync_ptsz : served_cuMemAllocFromPoolAsync;
    CUdevice device = 0;
    if (!ret_ptr || bytes == 0 || !pool) {
        return {};
    }
    const CUstream named = meant<per_thread>(stream);
    return server().pools.is_default(pool, device)
               ? allocate_from_default_pool(device, bytes, named, ret_ptr)
               : from_own_pool<entry>(pool, named, ret_ptr, bytes, pool, stream);
}

} // namespace

void serve_device_memory(Entries &entries) {
    serve<served_cuMemAlloc_v2, &mem_alloc, &driver_gave<>>(entries);
    serve<served_cuMemAllocPitch_v2, &mem_alloc_pitch, &driver_gave_rows>(entries);
    serve<served_cuMemAllocManaged, &mem_alloc_managed, &driver_gave<unsigned>>(entries);
    constexpr auto gave_on_stream = &driver_gave<CUstream>;
    serve<served_cuMemAllocAsync, &mem_alloc_async<false>, gave_on_stream>(entries);
    serve<served_cuMemAllocAsync_ptsz, &mem_alloc_async<true>, gave_on_stream>(entries);
    constexpr auto gave_from_pool = &driver_gave<CUmemoryPool, CUstream>;
    serve<served_cuMemAllocFromPoolAsync, &mem_alloc_from_pool_async<false>, gave_from_pool>(
        entries);
    serve<served_cuMemAllocFromPoolAsync_ptsz, &mem_alloc_from_pool_async<true>, gave_from_pool>(
        entries);
}

} // namespace emm::run
