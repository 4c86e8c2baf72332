#include "call.h"
#include "simcuda.h"
#include "simulator.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace simcuda {
namespace {

uint64_t access_of(const Region &region) {
    return region.pool ? region.pool->access : region.access;
}

// The driver makes copies and reaches all memory; a kernel reaches only memory that its context may
// use.
void check_reach(const Context &context, CUdeviceptr address) {
    const Region *region = sim().regions.around(address);
    const bool mapped = region && region->kind == Kind::mapped;
    if (!region || region->on_host() || region->kind == Kind::managed ||
        (region->device == context.device && !mapped)) {
        return;
    }
    const auto enabled = [&](const Context *peer) { return peer->device == region->device; };
    const bool follows_peers = !mapped && !region->pool; // also for memory of cuIpcOpenMemHandle
    const bool reaches =
        (access_of(*region) >> context.device->ordinal & 1) != 0 ||
        (follows_peers && std::any_of(context.peers.begin(), context.peers.end(), enabled));
    if (!reaches) {
        refuse(misuse("%s on device %d, which device %d was given no access to",
                      sim().regions.describe(address).c_str(), region->device->ordinal,
                      context.device->ordinal));
    }
}

void bind_ranges(const Context &context, const std::vector<simcuda_range> &ranges, Task &ret_task) {
    for (const simcuda_range &range : ranges) {
        const std::vector<Span> spans = resolve("range", range.address, range.size, false);
        check_reach(context, range.address);
        for (const Span &span : spans) {
            ret_task.uses.push_back({span, range.write != 0});
        }
    }
}

void launch(CUstream handle, void (*function)(void *), void *argument,
            const std::vector<simcuda_range> &ranges, bool programmatic) {
    Stream &stream = find_stream(handle);
    enqueue(stream, [=, context = &root_of(*stream.context)](Task &ret_task) {
        ret_task.outside = ret_task.kernel = true;
        ret_task.programmatic = programmatic;
        if (function) {
            ret_task.run = [=] { function(argument); };
        }
        bind_ranges(*context, ranges, ret_task);
    });
}

void put_work(CUstream handle, uint64_t microseconds) {
    Stream &stream = find_stream(handle);
    enqueue(stream, [=](Task &ret_task) {
        ret_task.kernel = true;
        ret_task.duration = std::chrono::microseconds(microseconds);
    });
}

// Counts as cuLaunchHostFunc, because it is a host function with ranges.
int enter_launch(const char *call, CUstream stream, void (*function)(void *), void *argument,
                 const std::vector<simcuda_range> &ranges, bool programmatic) {
    return enter(row_cuLaunchHostFunc, false, [&] {
        this_thread.call = call;
        launch(stream, function, argument, ranges, programmatic);
    });
}

} // namespace

void enqueue_nothing(CUstream stream) {
    launch(stream, nullptr, nullptr, {}, false);
}

} // namespace simcuda

extern "C" __attribute__((visibility("default"))) int
simcuda_launch(CUstream stream, void (*function)(void *), void *argument,
               const simcuda_range *ranges, size_t count) {
    return simcuda::enter_launch("simcuda_launch", stream, function, argument,
                                 {ranges, ranges + count}, false);
}

extern "C" __attribute__((visibility("default"))) int
simcuda_launch_programmatic(CUstream stream, void (*function)(void *), void *argument,
                            const simcuda_range *ranges, size_t count) {
    return simcuda::enter_launch("simcuda_launch_programmatic", stream, function, argument,
                                 {ranges, ranges + count}, true);
}

extern "C" __attribute__((visibility("default"))) int simcuda_work(CUstream stream,
                                                                   uint64_t microseconds) {
    using namespace simcuda;
    return enter(row_cuLaunchHostFunc, false, [&] {
        this_thread.call = "simcuda_work";
        put_work(stream, microseconds);
    });
}
