#include "context.h"

#include "call.h"
#include "share.h"
#include "simulator.h"

namespace simcuda {

Context &find_context(CUcontext handle) {
    Context *const context = sim().contexts.find(handle);
    if (!context) {
        refuse(sim().contexts.was(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                          : CUDA_ERROR_INVALID_CONTEXT);
    }
    return *context;
}

Context &current_context() {
    expect(this_thread.depth, CUDA_ERROR_INVALID_CONTEXT);
    return find_context(this_thread.stack[this_thread.depth - 1]);
}

Context &context_or_current(CUcontext handle) {
    return handle ? find_context(handle) : current_context();
}

Context &current_root() {
    return root_of(current_context());
}

Context *make_context(Device &device, unsigned flags, CUcontext handle) {
    auto *context = new Context;
    context->id = ++sim().context_ids;
    context->device = &device;
    context->flags = flags;
    context->primary = handle != nullptr;
    context->handle = handle ? handle : sim().contexts.reserve();
    sim().contexts.set(context->handle, context);
    device.contexts.insert(context);
    context->legacy.reset(make_stream(*context, Stream::Kind::legacy, 0, 0));
    return context;
}

void end_context(Context *context) {
    const CUcontext handle = context->handle;
    while (!context->greens.empty()) {
        end_context(*context->greens.begin());
    }
    wait_for(*context);
    while (!context->streams.empty()) {
        end_stream(*context->streams.begin());
    }
    end_events(*context);
    end_arrays(*context);
    end_modules(*context);
    for (const CUdeviceptr start : sim().regions.of(context)) {
        Region *region = sim().regions.at(start);
        if (region->kind == Kind::pooled) {
            region->context = nullptr; // a pool and what is in it belong to the device
        } else if (region->opens.count(context) == 0 || !leave_import(*region, context)) {
            free_region(start);
        }
    }
    if (context->root) {
        context->root->greens.erase(context);
    }
    for (const auto &device : sim().devices) {
        device->contexts.erase(context);
        for (Context *other : device->contexts) {
            other->peers.erase(context);
        }
    }
    if (context->primary) {
        sim().contexts.set(handle, nullptr); // which stays the device's
        delete context;
    } else {
        sim().contexts.destroy(handle);
    }
    sim().sticky = CUDA_SUCCESS;
}

std::vector<OpRef> work_of(const Context &context) {
    std::vector<OpRef> work = context.orphans;
    for (const Stream *stream : context.streams) {
        work.push_back(stream->tail);
    }
    for (const Context *green : context.greens) {
        const std::vector<OpRef> its = work_of(*green);
        work.insert(work.end(), its.begin(), its.end());
    }
    return work;
}

Clock clock_of(const Context &context) {
    Clock clock = context.orphan_clock;
    for (const Stream *stream : context.streams) {
        clock.join(stream->clock, sim().host);
    }
    for (const Context *green : context.greens) {
        clock.join(clock_of(*green), sim().host);
    }
    return clock;
}

void wait_for(Context &context) {
    const Clock clock = clock_of(context);
    for (const OpRef &op : work_of(context)) {
        sim().work.wait(op);
    }
    clock.seen_by(sim().host);
    trim_pools();
}

} // namespace simcuda
