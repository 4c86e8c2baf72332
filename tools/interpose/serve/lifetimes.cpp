// The beginnings and ends of contexts, streams and captures, of which emm is told before the
// driver.
#include "server.h"

#include <cstdio>

namespace emm::run {
namespace {

// --- contexts ----------------------------------------------------------------------------------

// cuCtxDestroy and cuCtxDetach do not end a primary context, so its memory stays. emm's record of
// the context tells this for the handle of a green one as well.
bool is_primary(CUcontext context) {
    auto info = sized<emm_context_info>();
    emm_context *const known = server().contexts.known(context);
    return server().contexts.is_retained(context) ||
           (known && emm_context_get_info(known, &info) >= 0 && info.primary);
}

bool is_current(CUcontext context) {
    CUcontext current = nullptr;
    return server().driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context;
}

// emm gives memory back before the driver ends the context, and cannot foresee this refusal.
void say_if_it_lives(bool was_served, CUcontext context, CUresult result) {
    if (!was_served || result == CUDA_SUCCESS ||
        Current(server().driver, context).result() != CUDA_SUCCESS) {
        return;
    }
    std::fprintf(stderr,
                 "emm run: the driver has refused to end a context (CUDA error %d); emm has given "
                 "back the memory there, and from now on the driver itself serves that context\n",
                 int(result));
}

template <Served entry> CUresult ctx_end(CUcontext context) {
    const Turn turn;
    const bool was_served =
        turn.is_programs() && context && !is_primary(context) && server().end_context(context);
    const CUresult result = ask_driver<&ctx_end<entry>>(entry, context);
    say_if_it_lives(was_served, context, result);
    return result;
}

void ctx_attached(CUcontext *ret_context, unsigned) {
    server().contexts.count_attach(*ret_context);
}

CUresult ctx_detach(CUcontext context) {
    const Turn turn;
    Contexts &contexts = server().contexts;
    const bool counts = turn.is_programs() && is_current(context) && !is_primary(context);
    const bool is_last = counts && contexts.count_detach(context);
    const bool was_served = is_last && server().end_context(context);
    const CUresult result = ask_driver<&ctx_detach>(served_cuCtxDetach, context);
    if (counts && !is_last && result != CUDA_SUCCESS) {
        contexts.count_attach(context);
    }
    say_if_it_lives(was_served, context, result);
    return result;
}

// Held from the count of a primary context's users to the driver's answer: another thread must not
// retain the context, and allocate there, while its last release is under way.
class PrimaryTurn {
public:
    explicit PrimaryTurn(CUdevice device) {
        if (turn_.is_programs()) {
            lock_ = std::unique_lock(server().contexts.primary_mutex(device));
        }
    }
    bool is_programs() const { return turn_.is_programs(); }

    // The lock is not held: a host function may wait for another thread, which may retain the
    // context.
    void wait_for_work_of(CUcontext context) {
        lock_.unlock();
        server().contexts.wait_for_work_of(context);
        lock_.lock();
    }

private:
    const Turn turn_;
    std::unique_lock<std::mutex> lock_;
};

// Returns the primary context that this call releases. Before the last release, waits for its work.
CUcontext wait_to_release(PrimaryTurn &turn, CUdevice device) {
    Contexts::Retained held = server().contexts.retained_on(device);
    for (uint64_t waited_for = 0; held.count == 1 && held.latest != waited_for;
         held = server().contexts.retained_on(device)) {
        waited_for = held.latest;
        turn.wait_for_work_of(held.context);
    }
    return held.context;
}

CUresult primary_retain(CUcontext *ret_context, CUdevice device) {
    const PrimaryTurn turn(device);
    const CUresult result =
        ask_driver<&primary_retain>(served_cuDevicePrimaryCtxRetain, ret_context, device);
    if (turn.is_programs() && result == CUDA_SUCCESS) {
        server().contexts.count_retain(device, *ret_context);
    }
    return result;
}

template <class Release>
CUresult release_primary(PrimaryTurn &turn, CUdevice device, Release driver_does) {
    Contexts &contexts = server().contexts;
    const CUcontext context = turn.is_programs() ? wait_to_release(turn, device) : nullptr;
    const bool was_served =
        context && contexts.count_release(device) && server().end_context(context);
    const CUresult result = driver_does();
    if (context && result != CUDA_SUCCESS) {
        contexts.count_retain(device, context);
    }
    say_if_it_lives(was_served, context, result);
    return result;
}

template <Served entry> CUresult primary_release(CUdevice device) {
    PrimaryTurn turn(device);
    return release_primary(turn, device,
                           [&] { return ask_driver<&primary_release<entry>>(entry, device); });
}

template <Served entry> CUresult primary_reset(CUdevice device) {
    PrimaryTurn turn(device);
    const CUcontext context =
        turn.is_programs() ? server().contexts.retained_on(device).context : nullptr;
    if (context) {
        turn.wait_for_work_of(context);
    }
    const bool was_served = context && server().end_context(context);
    const CUresult result = ask_driver<&primary_reset<entry>>(entry, device);
    say_if_it_lives(was_served, context, result);
    return result;
}

// --- green contexts, of which headers before CUDA 12.4 know nothing ------------------------------

// A green context retains its primary context.
CUresult green_create(CUgreenCtx_st **ret_green, void *description, CUdevice device,
                      unsigned flags) {
    const PrimaryTurn turn(device);
    const CUresult result =
        ask_driver<&green_create>(served_cuGreenCtxCreate, ret_green, description, device, flags);
    Contexts &contexts = server().contexts;
    CUcontext primary = nullptr;
    Contexts::Green made = {nullptr, device};
    if (turn.is_programs() && result == CUDA_SUCCESS &&
        server().driver.context_of_green(&made.context, *ret_green) == CUDA_SUCCESS &&
        ask_driver<&primary_retain>(served_cuDevicePrimaryCtxRetain, &primary, device) ==
            CUDA_SUCCESS) {
        ask_driver<&primary_release<served_cuDevicePrimaryCtxRelease_v2>>(
            served_cuDevicePrimaryCtxRelease_v2, device);
        contexts.count_retain(device, primary);
        contexts.green_made(*ret_green, made);
    }
    return result;
}

// Called first, because another thread may get the handle of its capture's graph. The answer is for
// capture_over, after the driver has destroyed the stream.
uint64_t stream_ends(CUstream stream) {
    const uint64_t capture = server().streams.ending(stream);
    server().graph_memory.capture_lost(capture);
    return capture;
}

CUresult green_destroy(CUgreenCtx_st *green) {
    Contexts &contexts = server().contexts;
    Contexts::Green known;
    const auto driver_does = [&] {
        return ask_driver<&green_destroy>(served_cuGreenCtxDestroy, green);
    };
    if (!contexts.find_green(green, known)) {
        const Turn turn;
        return driver_does();
    }
    PrimaryTurn turn(known.device);
    if (turn.is_programs()) {
        for (const CUstream stream : server().streams.made_in(known.context)) {
            server().streams.capture_over(stream_ends(stream));
        }
        contexts.green_ends(green);
    }
    return release_primary(turn, known.device, driver_does);
}

// --- streams -----------------------------------------------------------------------------------

template <class... More> void stream_created(CUstream *ret_stream, More...) {
    CUcontext current = nullptr;
    if (server().driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS) {
        server().streams.made(*ret_stream, current);
    }
}

void green_stream_created(CUstream *ret_stream, CUgreenCtx_st *green, unsigned, int) {
    Contexts::Green known;
    if (server().contexts.find_green(green, known)) {
        server().streams.made(*ret_stream, known.context);
    }
}

template <Served entry> CUresult stream_destroy(CUstream stream) {
    const Turn turn;
    const uint64_t capture = turn.is_programs() ? stream_ends(stream) : 0;
    const CUresult result = ask_driver<&stream_destroy<entry>>(entry, stream);
    server().streams.capture_over(capture);
    return result;
}

// --- captures ----------------------------------------------------------------------------------

// The stream begins a capture, or may join the capture of an event: only the wait itself can tell
// without harm. So the stream is announced meanwhile. `More` follows the stream.
template <Served entry, bool per_thread, Streams::Part part, class... More>
CUresult enter_capture(CUstream stream, More... more) {
    const Turn turn;
    Streams &streams = server().streams;
    const bool may_capture = part == Streams::Part::origin || streams.any_capture();
    const bool announced = turn.is_programs() && may_capture &&
                           streams.capture_begins(meant<per_thread>(stream), part);
    const CUresult result =
        ask_driver<&enter_capture<entry, per_thread, part, More...>>(entry, stream, more...);
    if (announced) {
        streams.capture_begun(meant<per_thread>(stream), part, result);
    }
    return result;
}

// Headers before CUDA 13.3 have no type for the callback.
template <Served entry, bool per_thread>
CUresult begin_recapture_to_graph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                  void (*callback)(), void *argument) {
    const CUresult result = enter_capture<entry, per_thread, Streams::Part::origin>(
        stream, mode, graph, callback, argument);
    if (result == CUDA_SUCCESS && server().graph_memory.any()) {
        server().graph_memory.graph_ended(graph); // graphs made of it keep its memory
    }
    return result;
}

template <Served entry, bool per_thread> CUresult end_capture(CUstream stream, CUgraph *ret_graph) {
    const Turn turn;
    const CUresult result = ask_driver<&end_capture<entry, per_thread>>(entry, stream, ret_graph);
    if (turn.is_programs() && result == CUDA_SUCCESS && server().graph_memory.any()) {
        server().graph_memory.capture_ended(*ret_graph);
    }
    if (turn.is_programs() && server().streams.any_capture()) {
        const uint64_t ended = server().streams.capture_ended(meant<per_thread>(stream));
        if (result != CUDA_SUCCESS) {
            server().graph_memory.capture_lost(ended);
        }
    }
    return result;
}

} // namespace

void serve_lifetimes(Entries &entries) {
#define SERVE_BOTH_VERSIONS(symbol, function)                                                      \
    entries.at[served_##symbol] = entry_of<&function<served_##symbol>>();                          \
    entries.at[served_##symbol##_v2] = entry_of<&function<served_##symbol##_v2>>()
    SERVE_BOTH_VERSIONS(cuCtxDestroy, ctx_end);
    SERVE_BOTH_VERSIONS(cuDevicePrimaryCtxRelease, primary_release);
    SERVE_BOTH_VERSIONS(cuDevicePrimaryCtxReset, primary_reset);
    SERVE_BOTH_VERSIONS(cuStreamDestroy, stream_destroy);
#undef SERVE_BOTH_VERSIONS
    entries.at[served_cuCtxDetach] = entry_of<&ctx_detach>();
    entries.at[served_cuDevicePrimaryCtxRetain] = entry_of<&primary_retain>();
    watch<served_cuCtxAttach, &ctx_attached>(entries);

    entries.at[served_cuGreenCtxCreate] = entry_of<&green_create>();
    entries.at[served_cuGreenCtxDestroy] = entry_of<&green_destroy>();
    watch<served_cuGreenCtxStreamCreate, &green_stream_created>(entries);

    watch<served_cuStreamCreate, &stream_created<unsigned>>(entries);
    watch<served_cuStreamCreateWithPriority, &stream_created<unsigned, int>>(entries);

#define SERVE_STREAM_ENTRY(symbol, function, ...)                                                  \
    entries.at[served_##symbol] =                                                                  \
        entry_of<&function<served_##symbol, false __VA_OPT__(, ) __VA_ARGS__>>();                  \
    entries.at[served_##symbol##_ptsz] =                                                           \
        entry_of<&function<served_##symbol##_ptsz, true __VA_OPT__(, ) __VA_ARGS__>>()
    using Part = Streams::Part;
    SERVE_STREAM_ENTRY(cuStreamBeginCapture, enter_capture, Part::origin);
    SERVE_STREAM_ENTRY(cuStreamBeginCapture_v2, enter_capture, Part::origin, CUstreamCaptureMode);
    SERVE_STREAM_ENTRY(cuStreamBeginCaptureToGraph, enter_capture, Part::origin, CUgraph,
                       const CUgraphNode *, const CUgraphEdgeData *, size_t, CUstreamCaptureMode);
    SERVE_STREAM_ENTRY(cuStreamBeginRecaptureToGraph, begin_recapture_to_graph);
    SERVE_STREAM_ENTRY(cuStreamEndCapture, end_capture);
    SERVE_STREAM_ENTRY(cuStreamWaitEvent, enter_capture, Part::other, CUevent, unsigned);
#undef SERVE_STREAM_ENTRY
}

} // namespace emm::run
