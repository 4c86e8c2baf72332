// Frees of device memory, with and without a stream. Both take memory of both kinds of allocation.
#include "server.h"

#include <optional>

namespace emm::run {
namespace {

// Memory that could not be freed stays the program's, unless another thread has freed it too.
[[gnu::noinline]] CUresult refuse(Allocation allocation, emm_status status) {
    if (status != EMM_E_NOT_OWNED) {
        server().allocations.put_back(allocation);
    }
    return result_of(status);
}
[[gnu::always_inline]] inline CUresult result_of_free(const Allocation &allocation,
                                                      emm_status status) {
    return status < 0 ? refuse(allocation, status) : CUDA_SUCCESS;
}

// Whether the program has no memory of emm's at that address: the memory is the driver's or another
// process's, was freed before, or is a graph's that no launch has left to the program.
bool is_none(const Allocation &found) {
    return found.address == 0 || !found.is_programs();
}

// Offers a second free to the plugins, because a layer such as guard reports it. Code that calls
// emm itself may have got the address meanwhile: so only a plugin that knows its blocks is asked,
// and with a size that no block has.
[[gnu::noinline]] void have_plugins_refuse(uint64_t address) {
    const auto refuse_free = [](emm_context *context, void *freed) {
        const uint64_t ptr = *static_cast<uint64_t *>(freed);
        auto block = sized<emm_block_info>();
        if (emm_query(context, ptr, &block) == EMM_E_NOT_OWNED) {
            emm_memfree(context, ptr, SIZE_MAX, EMM_STREAM_UNORDERED);
        }
        return 0;
    };
    emm_foreach_context(refuse_free, &address);
}

Answer free_none(const Allocation &found, uint64_t address) {
    if (found.address == 0 && found.freed) {
        have_plugins_refuse(address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const bool is_refused = found.address != 0 || server().sharing.around(address).address != 0;
    return is_refused ? Answer(CUDA_ERROR_INVALID_VALUE) : Answer();
}

// The program frees the memory: other processes can no longer open it.
Allocation take(uint64_t address) {
    server().give_back_of_ended_graphs();
    Allocation found = server().allocations.take(address, on_device);
    if (found.exported) [[unlikely]] {
        server().sharing.end_export(found);
        found.exported = false;
    }
    return found;
}

// Frees memory of a pool of the program's own; the pool may have ended.
[[gnu::always_inline]] inline CUresult free_to_pool(const Allocation &found, CUstream stream) {
    const CUresult result =
        result_of_free(found, emm_memfree(found.pool, found.address, found.size, stream));
    if (server().own_pools.has_leaving() && !server().streams.any_capture()) [[unlikely]] {
        server().own_pools.freed_to(found.pool);
    }
    return result;
}

// Any device memory of emm's, however it was allocated.
Answer free_unordered(CUdeviceptr address) {
    const Allocation found = take(address);
    if (is_none(found)) {
        return free_none(found, address);
    }
    if (server().options.sync_free) [[unlikely]] {
        server().streams.wait_for_work_of(found.context); // as the driver's own free does
    }
    if (found.kind == Kind::captured) {
        return CUDA_SUCCESS; // until the graph is gone
    }
    if (found.pool) [[unlikely]] {
        return free_to_pool(found, EMM_STREAM_UNORDERED);
    }
    return result_of_free(
        found,
        found.kind == Kind::managed
            ? emm_memfreemanaged(found.context, found.address, found.size, EMM_STREAM_UNORDERED)
            : emm_memfree(found.context, address, found.size, EMM_STREAM_UNORDERED));
}

// The stream belongs to another context than the memory. A stream of emm's own, in the memory's
// context, waits for it. NULL: emm has no such stream.
[[gnu::noinline]] CUstream wait_behind(const Allocation &allocation, CUstream stream,
                                       emm_context *its_context) {
    const Driver &driver = server().driver;
    const CUstream own = server().streams.own_in(allocation.context, Streams::Own::waits);
    std::optional<Current> there;
    if (!Streams::is_cudas_own(stream)) {
        there.emplace(driver, cuda_of(its_context));
    }
    CUevent event = nullptr;
    if (!own || (there && there->result() != CUDA_SUCCESS) ||
        driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        return nullptr;
    }
    const bool waits = driver.cuEventRecord(event, stream) == CUDA_SUCCESS &&
                       driver.cuStreamWaitEvent(own, event, 0) == CUDA_SUCCESS;
    driver.cuEventDestroy(event);
    return waits ? own : nullptr;
}

// The graph frees memory that it has allocated itself. The plugin keeps the memory for the graph,
// and may give it out again in the same capture. On a stream of another context the allocation
// stays as it is, and each launch frees it again.
Answer free_in_own_graph(const Capture &capture, const Allocation &found, CUstream stream) {
    const AllocationName name = {found.address, found.id};
    emm_status context_status = EMM_OK;
    if (server().streams.context_of(stream, context_status) != found.context) {
        return server().graph_memory.add_free(capture, name) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
    }
    server().allocations.remove(name);
    const emm_status status = emm_memfree(found.context, found.address, found.size, stream);
    if (status >= 0) {
        server().graph_memory.remove(capture, name);
    }
    return result_of_free(found, status);
}

// A free on a stream that captures. None: the memory is freed as outside of captures.
[[gnu::noinline]] Answer free_in_capture(uint64_t address, CUstream stream) {
    Capture capture;
    const CUresult result = server().graph_memory.capture_of(stream, capture);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const Allocation found = capture.graph ? server().allocations.find(address) : Allocation();
    if (found.kind != Kind::captured) {
        return {};
    }
    GraphMemory &graphs = server().graph_memory;
    const AllocationName name = {found.address, found.id};
    const CUresult prepared = graphs.prepare(capture);
    if (prepared != CUDA_SUCCESS) {
        return prepared;
    }
    return graphs.leaves(capture, name)     ? free_in_own_graph(capture, found, stream)
           : graphs.add_free(capture, name) ? CUDA_SUCCESS
                                            : CUDA_ERROR_INVALID_VALUE;
}

// CUDA's refusal of a stream of its own, in whose context emm does not serve. There may be no
// current context, and a green one has no own stream of a thread.
[[gnu::noinline]] CUresult refusal_of(CUstream stream) {
    CUstreamCaptureStatus any = CU_STREAM_CAPTURE_STATUS_NONE;
    return server().driver.cuStreamIsCapturing(stream, &any);
}

// Frees on a stream of `context`, which is not the memory's. NULL: emm does not serve the stream's
// context, or does not know it.
[[gnu::noinline]] CUresult free_elsewhere(Allocation found, CUstream stream, emm_context *context) {
    if (context || Streams::is_cudas_own(stream)) {
        stream = wait_behind(found, stream, context);
        if (!stream) {
            return refuse(found, EMM_E_DRIVER);
        }
    }
    if (found.kind == Kind::captured) {
        return CUDA_SUCCESS; // until the graph is gone
    }
    return found.pool ? free_to_pool(found, stream)
                      : result_of_free(
                            found, emm_memfree(found.context, found.address, found.size, stream));
}

// The plugin gets the address from the program and the context from the stream, not from the
// record. So the call can begin before the processor has loaded the record.
Answer free_outside(uint64_t address, CUstream stream) {
    emm_status status = EMM_OK;
    const CUstream named = stream;
    emm_context *const context = server().streams.context_of(stream, status);
    if (!context && Streams::is_cudas_own(named)) [[unlikely]] {
        const CUresult refusal = refusal_of(named);
        if (refusal != CUDA_SUCCESS) {
            return refusal;
        }
    }
    const Allocation found = take(address);
    if (is_none(found)) {
        return free_none(found, address);
    }
    if (found.kind == Kind::managed) [[unlikely]] {
        return result_of_free(found, emm_memfreemanaged(found.context, found.address, found.size,
                                                        EMM_STREAM_UNORDERED));
    }
    if (found.context != context) [[unlikely]] {
        return free_elsewhere(found, named, context);
    }
    if (found.kind == Kind::captured) {
        return CUDA_SUCCESS; // until the graph is gone
    }
    if (found.pool) [[unlikely]] {
        return free_to_pool(found, stream);
    }
    return result_of_free(found, emm_memfree(context, address, found.size, stream));
}

template <bool per_thread> Answer free_ordered(CUdeviceptr address, CUstream stream) {
    stream = meant<per_thread>(stream);
    Answer answer;
    if (server().streams.captures(stream)) [[unlikely]] {
        answer = free_in_capture(address, stream);
    }
    return answer ? answer : free_outside(address, stream);
}

} // namespace

void serve_frees(Entries &entries) {
    serve<served_cuMemFree_v2, &free_unordered>(entries);
    serve<served_cuMemFreeAsync, &free_ordered<false>>(entries);
    serve<served_cuMemFreeAsync_ptsz, &free_ordered<true>>(entries);
}

} // namespace emm::run
