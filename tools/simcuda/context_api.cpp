#include "call.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

CUresult create(CUcontext *ret_context, unsigned flags, CUdevice ordinal) {
    Device &device = expect_found(find_device, ordinal);
    expect(ret_context);
    const CUcontext handle = make_context(device, flags, nullptr)->handle;
    expect_success(api::ctx_push_current(handle));
    *ret_context = handle;
    return CUDA_SUCCESS;
}

bool is_working(const Context &context) {
    const std::vector<OpRef> work = work_of(context);
    return std::any_of(work.begin(), work.end(), [](const OpRef &op) { return op && !op->done(); });
}

} // namespace

CUresult api::device_primary_ctx_retain(CUcontext *pctx, CUdevice dev) {
    Device &device = expect_found(find_device, dev);
    expect(pctx);
    if (!sim().contexts.find(device.primary_handle)) {
        make_context(device, device.primary_flags, device.primary_handle);
    }
    ++device.primary_users;
    *pctx = device.primary_handle;
    return CUDA_SUCCESS;
}

CUresult api::device_primary_ctx_release(CUdevice dev) {
    Device &device = expect_found(find_device, dev);
    Context *context = sim().contexts.find(device.primary_handle);
    while (context && device.primary_users == 1 && is_working(*context)) {
        wait_for(*context); // while a host function runs, another thread may retain it
        context = sim().contexts.find(device.primary_handle);
    }
    expect(device.primary_users != 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--device.primary_users == 0 && context) {
        end_context(context);
    }
    return CUDA_SUCCESS;
}

// The program must still release each retain.
CUresult api::device_primary_ctx_reset(CUdevice dev) {
    Device &device = expect_found(find_device, dev);
    if (Context *context = sim().contexts.find(device.primary_handle)) {
        end_context(context);
    }
    return CUDA_SUCCESS;
}

CUresult api::device_primary_ctx_get_state(CUdevice dev, unsigned int *flags, int *active) {
    Device &device = expect_found(find_device, dev);
    expect(flags && active);
    *flags = device.primary_flags;
    *active = sim().contexts.find(device.primary_handle) != nullptr;
    return CUDA_SUCCESS;
}

// Before CUDA 11 the flags could not be changed under a context.
CUresult api::device_primary_ctx_set_flags_v1(CUdevice dev, unsigned int flags) {
    expect(!sim().contexts.find(expect_found(find_device, dev).primary_handle),
           CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    return device_primary_ctx_set_flags(dev, flags);
}

CUresult api::device_primary_ctx_set_flags(CUdevice dev, unsigned int flags) {
    Device &device = expect_found(find_device, dev);
    device.primary_flags = flags;
    if (Context *context = sim().contexts.find(device.primary_handle)) {
        context->flags = flags;
    }
    return CUDA_SUCCESS;
}

CUresult api::ctx_create(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev);
}

CUresult api::ctx_create_v3(CUcontext *pctx, CUexecAffinityParam *, int affinities,
                            unsigned int flags, CUdevice dev) {
    return affinities > 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}

CUresult api::ctx_create_v4(CUcontext *pctx, CUctxCreateParams *parameters, unsigned int flags,
                            CUdevice dev) {
    const bool empty = !parameters || (!parameters->execAffinityParams && !parameters->cigParams);
    return empty ? create(pctx, flags, dev) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult api::ctx_destroy(CUcontext ctx) {
    Context &context = expect_found(find_context, ctx);
    expect(!context.primary && !context.root, CUDA_ERROR_INVALID_CONTEXT);
    if (this_thread.depth && this_thread.stack[this_thread.depth - 1] == ctx) {
        --this_thread.depth;
    }
    end_context(&context);
    return CUDA_SUCCESS;
}

CUresult api::ctx_attach(CUcontext *pctx, unsigned int flags) {
    Context &context = expect_found(current_context);
    expect(pctx && flags == 0);
    expect(!context.primary && !context.root, CUDA_ERROR_INVALID_CONTEXT);
    ++context.users;
    *pctx = context.handle;
    return CUDA_SUCCESS;
}

// Nothing comes of a detachment from a primary context: cuDevicePrimaryCtxRetain counts its users.
CUresult api::ctx_detach(CUcontext ctx) {
    Context &context = expect_found(find_context, ctx);
    Context &current = expect_found(current_context);
    expect(&current == &context, CUDA_ERROR_INVALID_CONTEXT);
    const bool stays = context.primary || context.root || --context.users > 0;
    return stays ? CUDA_SUCCESS : ctx_destroy(ctx);
}

CUresult api::ctx_push_current(CUcontext ctx) {
    expect_found(find_context, ctx);
    if (this_thread.depth == Thread::deepest) {
        return misuse("this thread has pushed %d contexts and popped none", Thread::deepest);
    }
    this_thread.stack[this_thread.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult api::ctx_pop_current(CUcontext *pctx) {
    expect(this_thread.depth != 0, CUDA_ERROR_INVALID_CONTEXT);
    const CUcontext popped = this_thread.stack[--this_thread.depth];
    if (pctx) {
        *pctx = popped;
    }
    return CUDA_SUCCESS;
}

// Replaces the top of the stack; NULL takes it away.
CUresult api::ctx_set_current(CUcontext ctx) {
    Context *context;
    expect_success(ctx ? find_context(ctx, context) : CUDA_SUCCESS);
    this_thread.depth -= this_thread.depth > 0;
    return ctx ? ctx_push_current(ctx) : CUDA_SUCCESS;
}

CUresult api::ctx_get_current(CUcontext *pctx) {
    return tell(pctx, this_thread.depth ? this_thread.stack[this_thread.depth - 1] : nullptr);
}

CUresult api::ctx_get_device(CUdevice *device) {
    return ctx_get_device_v2(device, nullptr);
}

CUresult api::ctx_get_device_v2(CUdevice *device, CUcontext ctx) {
    return tell(device, expect_found(context_or_current, ctx).device->ordinal);
}

CUresult api::ctx_get_id(CUcontext ctx, unsigned long long *ctx_id) {
    return tell(ctx_id, expect_found(context_or_current, ctx).id);
}

CUresult api::ctx_get_flags(unsigned int *flags) {
    return tell(flags, expect_found(current_context).flags);
}

CUresult api::ctx_get_api_version(CUcontext ctx, unsigned int *version) {
    expect_found(context_or_current, ctx);
    return tell(version, 3020);
}

CUresult api::ctx_get_stream_priority_range(int *least_priority, int *greatest_priority) {
    expect_found(current_context);
    if (least_priority) {
        *least_priority = 0;
    }
    if (greatest_priority) {
        *greatest_priority = greatest_stream_priority;
    }
    return CUDA_SUCCESS;
}

CUresult api::ctx_synchronize() {
    return ctx_synchronize_v2(nullptr);
}

CUresult api::ctx_synchronize_v2(CUcontext ctx) {
    Context &context = expect_found(context_or_current, ctx);
    expect_success(check_no_captures(context));
    wait_for(context);
    return CUDA_SUCCESS;
}

CUresult api::ctx_enable_peer_access(CUcontext peer_context, unsigned int flags) {
    Context &context = expect_found(current_root);
    Context &peer = root_of(expect_found(find_context, peer_context));
    expect(flags == 0);
    expect(context.device != peer.device && sim().options.peers,
           CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    return context.peers.insert(&peer).second ? CUDA_SUCCESS
                                              : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult api::ctx_disable_peer_access(CUcontext peer_context) {
    Context &context = expect_found(current_root);
    Context &peer = root_of(expect_found(find_context, peer_context));
    return context.peers.erase(&peer) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

} // namespace simcuda
