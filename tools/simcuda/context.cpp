#include "context.h"

#include "call.h"
#include "share.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

void create(CUcontext *ret_context, unsigned flags, CUdevice ordinal) {
    Device &device = find_device(ordinal);
    expect(ret_context);
    const CUcontext handle = make_context(device, flags, nullptr)->handle;
    api::ctx_push_current(handle);
    *ret_context = handle;
}

bool is_working(const Context &context) {
    const std::vector<OpRef> work = work_of(context);
    return std::any_of(work.begin(), work.end(), [](const OpRef &op) { return op && !op->done(); });
}

} // namespace

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
            region->context = nullptr; // a pool and its memory belong to the device
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
        sim().contexts.set(handle, nullptr); // the context stays the device's
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

void api::device_primary_ctx_retain(CUcontext *pctx, CUdevice dev) {
    Device &device = find_device(dev);
    expect(pctx);
    if (!sim().contexts.find(device.primary_handle)) {
        make_context(device, device.primary_flags, device.primary_handle);
    }
    ++device.primary_users;
    *pctx = device.primary_handle;
}

void api::device_primary_ctx_release(CUdevice dev) {
    Device &device = find_device(dev);
    Context *context = sim().contexts.find(device.primary_handle);
    while (context && device.primary_users == 1 && is_working(*context)) {
        wait_for(*context); // while a host function runs, another thread may retain the context
        context = sim().contexts.find(device.primary_handle);
    }
    expect(device.primary_users != 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--device.primary_users == 0 && context) {
        end_context(context);
    }
}

// The program must still release each retain.
void api::device_primary_ctx_reset(CUdevice dev) {
    Device &device = find_device(dev);
    if (Context *context = sim().contexts.find(device.primary_handle)) {
        end_context(context);
    }
}

void api::device_primary_ctx_get_state(CUdevice dev, unsigned int *flags, int *active) {
    Device &device = find_device(dev);
    expect(flags && active);
    *flags = device.primary_flags;
    *active = sim().contexts.find(device.primary_handle) != nullptr;
}

// Before CUDA 11 the flags could not be changed under a context.
void api::device_primary_ctx_set_flags_v1(CUdevice dev, unsigned int flags) {
    expect(!sim().contexts.find(find_device(dev).primary_handle),
           CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    device_primary_ctx_set_flags(dev, flags);
}

void api::device_primary_ctx_set_flags(CUdevice dev, unsigned int flags) {
    Device &device = find_device(dev);
    device.primary_flags = flags;
    if (Context *context = sim().contexts.find(device.primary_handle)) {
        context->flags = flags;
    }
}

void api::ctx_create(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    create(pctx, flags, dev);
}

void api::ctx_create_v3(CUcontext *pctx, CUexecAffinityParam *, int affinities, unsigned int flags,
                        CUdevice dev) {
    expect(affinities <= 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    create(pctx, flags, dev);
}

void api::ctx_create_v4(CUcontext *pctx, CUctxCreateParams *parameters, unsigned int flags,
                        CUdevice dev) {
    expect(!parameters || (!parameters->execAffinityParams && !parameters->cigParams),
           CUDA_ERROR_NOT_SUPPORTED);
    create(pctx, flags, dev);
}

void api::ctx_destroy(CUcontext ctx) {
    Context &context = find_context(ctx);
    expect(!context.primary && !context.root, CUDA_ERROR_INVALID_CONTEXT);
    if (this_thread.depth && this_thread.stack[this_thread.depth - 1] == ctx) {
        --this_thread.depth;
    }
    end_context(&context);
}

void api::ctx_attach(CUcontext *pctx, unsigned int flags) {
    Context &context = current_context();
    expect(pctx && flags == 0);
    expect(!context.primary && !context.root, CUDA_ERROR_INVALID_CONTEXT);
    ++context.users;
    *pctx = context.handle;
}

// A detachment from a primary context does nothing: cuDevicePrimaryCtxRetain counts its users.
void api::ctx_detach(CUcontext ctx) {
    Context &context = find_context(ctx);
    Context &current = current_context();
    expect(&current == &context, CUDA_ERROR_INVALID_CONTEXT);
    if (!context.primary && !context.root && --context.users == 0) {
        ctx_destroy(ctx);
    }
}

void api::ctx_push_current(CUcontext ctx) {
    find_context(ctx);
    if (this_thread.depth == Thread::deepest) {
        refuse(misuse("this thread has pushed %d contexts and popped none", Thread::deepest));
    }
    this_thread.stack[this_thread.depth++] = ctx;
}

void api::ctx_pop_current(CUcontext *pctx) {
    expect(this_thread.depth != 0, CUDA_ERROR_INVALID_CONTEXT);
    const CUcontext popped = this_thread.stack[--this_thread.depth];
    if (pctx) {
        *pctx = popped;
    }
}

// Replaces the top of the stack; NULL removes it.
void api::ctx_set_current(CUcontext ctx) {
    if (ctx) {
        find_context(ctx);
    }
    this_thread.depth -= this_thread.depth > 0;
    if (ctx) {
        ctx_push_current(ctx);
    }
}

void api::ctx_get_current(CUcontext *pctx) {
    tell(pctx, this_thread.depth ? this_thread.stack[this_thread.depth - 1] : nullptr);
}

void api::ctx_get_device(CUdevice *device) {
    ctx_get_device_v2(device, nullptr);
}

void api::ctx_get_device_v2(CUdevice *device, CUcontext ctx) {
    tell(device, context_or_current(ctx).device->ordinal);
}

void api::ctx_get_id(CUcontext ctx, unsigned long long *ctx_id) {
    tell(ctx_id, context_or_current(ctx).id);
}

void api::ctx_get_flags(unsigned int *flags) {
    tell(flags, current_context().flags);
}

void api::ctx_get_api_version(CUcontext ctx, unsigned int *version) {
    context_or_current(ctx);
    tell(version, 3020);
}

void api::ctx_get_stream_priority_range(int *least_priority, int *greatest_priority) {
    current_context();
    if (least_priority) {
        *least_priority = 0;
    }
    if (greatest_priority) {
        *greatest_priority = greatest_stream_priority;
    }
}

void api::ctx_synchronize() {
    ctx_synchronize_v2(nullptr);
}

void api::ctx_synchronize_v2(CUcontext ctx) {
    Context &context = context_or_current(ctx);
    check_no_captures(context);
    wait_for(context);
}

void api::ctx_enable_peer_access(CUcontext peer_context, unsigned int flags) {
    Context &context = current_root();
    Context &peer = root_of(find_context(peer_context));
    expect(flags == 0);
    expect(context.device != peer.device && sim().options.peers,
           CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    expect(context.peers.insert(&peer).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

void api::ctx_disable_peer_access(CUcontext peer_context) {
    Context &context = current_root();
    Context &peer = root_of(find_context(peer_context));
    expect(context.peers.erase(&peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

} // namespace simcuda
