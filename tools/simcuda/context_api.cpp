#include "call.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

CUresult create(CUcontext *ret_context, unsigned flags, CUdevice ordinal) {
    Device *device;
    const CUresult result = find_device(ordinal, device);
    if (result != CUDA_SUCCESS || !ret_context) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    const CUcontext handle = make_context(*device, flags, nullptr)->handle;
    const CUresult pushed = api::ctx_push_current(handle);
    if (pushed == CUDA_SUCCESS) {
        *ret_context = handle;
    }
    return pushed;
}

bool is_working(const Context &context) {
    const std::vector<OpRef> work = work_of(context);
    return std::any_of(work.begin(), work.end(), [](const OpRef &op) { return op && !op->done(); });
}

// A context, NULL meaning the current one.
CUresult context_or_current(CUcontext handle, Context *&ret_context) {
    return handle ? find_context(handle, ret_context) : current_context(ret_context);
}

} // namespace

CUresult api::device_primary_ctx_retain(CUcontext *pctx, CUdevice dev) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result != CUDA_SUCCESS || !pctx) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim().contexts.find(device->primary_handle)) {
        make_context(*device, device->primary_flags, device->primary_handle);
    }
    ++device->primary_users;
    *pctx = device->primary_handle;
    return CUDA_SUCCESS;
}

CUresult api::device_primary_ctx_release(CUdevice dev) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    Context *context = sim().contexts.find(device->primary_handle);
    while (context && device->primary_users == 1 && is_working(*context)) {
        wait_for(*context); // while a host function runs, another thread may retain it
        context = sim().contexts.find(device->primary_handle);
    }
    if (device->primary_users == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--device->primary_users == 0 && context) {
        end_context(context);
    }
    return CUDA_SUCCESS;
}

// The program must still release each retain.
CUresult api::device_primary_ctx_reset(CUdevice dev) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (Context *context = sim().contexts.find(device->primary_handle)) {
        end_context(context);
    }
    return CUDA_SUCCESS;
}

CUresult api::device_primary_ctx_get_state(CUdevice dev, unsigned int *flags, int *active) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result != CUDA_SUCCESS || !flags || !active) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *flags = device->primary_flags;
    *active = sim().contexts.find(device->primary_handle) != nullptr;
    return CUDA_SUCCESS;
}

// Before CUDA 11 the flags could not be changed under a context.
CUresult api::device_primary_ctx_set_flags_v1(CUdevice dev, unsigned int flags) {
    Device *device;
    const CUresult result = find_device(dev, device);
    return result == CUDA_SUCCESS && sim().contexts.find(device->primary_handle)
               ? CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
               : device_primary_ctx_set_flags(dev, flags);
}

CUresult api::device_primary_ctx_set_flags(CUdevice dev, unsigned int flags) {
    Device *device;
    const CUresult result = find_device(dev, device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    device->primary_flags = flags;
    if (Context *context = sim().contexts.find(device->primary_handle)) {
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
    Context *context;
    const CUresult result = find_context(ctx, context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (context->primary || context->root) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (this_thread.depth && this_thread.stack[this_thread.depth - 1] == ctx) {
        --this_thread.depth;
    }
    end_context(context);
    return CUDA_SUCCESS;
}

CUresult api::ctx_attach(CUcontext *pctx, unsigned int flags) {
    Context *context;
    const CUresult result = current_context(context);
    if (result != CUDA_SUCCESS || !pctx || flags != 0) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (context->primary || context->root) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    ++context->users;
    *pctx = context->handle;
    return CUDA_SUCCESS;
}

// Nothing comes of a detachment from a primary context: cuDevicePrimaryCtxRetain counts its users.
CUresult api::ctx_detach(CUcontext ctx) {
    Context *context, *current;
    CUresult result = find_context(ctx, context);
    result = result == CUDA_SUCCESS ? current_context(current) : result;
    if (result != CUDA_SUCCESS || current != context) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
    }
    const bool stays = context->primary || context->root || --context->users > 0;
    return stays ? CUDA_SUCCESS : ctx_destroy(ctx);
}

CUresult api::ctx_push_current(CUcontext ctx) {
    Context *context;
    const CUresult result = find_context(ctx, context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (this_thread.depth == Thread::deepest) {
        return misuse("this thread has pushed %d contexts and popped none", Thread::deepest);
    }
    this_thread.stack[this_thread.depth++] = ctx;
    return CUDA_SUCCESS;
}

CUresult api::ctx_pop_current(CUcontext *pctx) {
    if (this_thread.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const CUcontext popped = this_thread.stack[--this_thread.depth];
    if (pctx) {
        *pctx = popped;
    }
    return CUDA_SUCCESS;
}

// Replaces the top of the stack; NULL takes it away.
CUresult api::ctx_set_current(CUcontext ctx) {
    Context *context;
    const CUresult result = ctx ? find_context(ctx, context) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    this_thread.depth -= this_thread.depth > 0;
    return ctx ? ctx_push_current(ctx) : CUDA_SUCCESS;
}

CUresult api::ctx_get_current(CUcontext *pctx) {
    if (!pctx) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = this_thread.depth ? this_thread.stack[this_thread.depth - 1] : nullptr;
    return CUDA_SUCCESS;
}

CUresult api::ctx_get_device(CUdevice *device) {
    return ctx_get_device_v2(device, nullptr);
}

CUresult api::ctx_get_device_v2(CUdevice *device, CUcontext ctx) {
    Context *context;
    const CUresult result = context_or_current(ctx, context);
    if (result != CUDA_SUCCESS || !device) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult api::ctx_get_id(CUcontext ctx, unsigned long long *ctx_id) {
    Context *context;
    const CUresult result = context_or_current(ctx, context);
    if (result != CUDA_SUCCESS || !ctx_id) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *ctx_id = context->id;
    return CUDA_SUCCESS;
}

CUresult api::ctx_get_flags(unsigned int *flags) {
    Context *context;
    const CUresult result = current_context(context);
    if (result != CUDA_SUCCESS || !flags) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult api::ctx_get_api_version(CUcontext ctx, unsigned int *version) {
    Context *context;
    const CUresult result = context_or_current(ctx, context);
    if (result != CUDA_SUCCESS || !version) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult api::ctx_get_stream_priority_range(int *least_priority, int *greatest_priority) {
    Context *context;
    const CUresult result = current_context(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
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
    Context *context;
    CUresult result = context_or_current(ctx, context);
    result = result == CUDA_SUCCESS ? check_no_captures(*context) : result;
    if (result == CUDA_SUCCESS) {
        wait_for(*context);
    }
    return result;
}

CUresult api::ctx_enable_peer_access(CUcontext peer_context, unsigned int flags) {
    Context *context, *peer;
    CUresult result = current_root(context);
    result = result == CUDA_SUCCESS ? find_context(peer_context, peer) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    peer = &root_of(*peer);
    if (context->device == peer->device || !sim().options.peers) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    return context->peers.insert(peer).second ? CUDA_SUCCESS
                                              : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult api::ctx_disable_peer_access(CUcontext peer_context) {
    Context *context, *peer;
    CUresult result = current_root(context);
    result = result == CUDA_SUCCESS ? find_context(peer_context, peer) : result;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return context->peers.erase(&root_of(*peer)) ? CUDA_SUCCESS
                                                 : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

} // namespace simcuda
