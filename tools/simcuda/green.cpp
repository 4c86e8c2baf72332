// Green contexts: streams of their own beside those of the device's primary context, which has the
// memory. Multiprocessors are counted but not divided, because there are no kernels.
#include "call.h"
#include "simulator.h"

#include <algorithm>

// Headers before CUDA 12.5 lack the types.
#if CUDA_VERSION >= 12050
namespace simcuda {
namespace {

constexpr unsigned multiprocessors = 132, fewest = 8; // as cuDeviceGetAttribute says

CUdevResource resource_of(unsigned count) {
    CUdevResource resource = {};
    resource.type = count == 0 ? CU_DEV_RESOURCE_TYPE_INVALID : CU_DEV_RESOURCE_TYPE_SM;
    resource.sm.smCount = count;
    return resource;
}

CUgreenCtx green_of(const Context &context) {
    return context.root ? reinterpret_cast<CUgreenCtx>(context.handle) : nullptr;
}

Context &find_green(CUgreenCtx handle) {
    Context &context = find_context(reinterpret_cast<CUcontext>(handle)); // the two are one
    expect(context.root, CUDA_ERROR_INVALID_CONTEXT);
    return context;
}

} // namespace

void api::device_get_dev_resource(CUdevice dev, CUdevResource *resource, CUdevResourceType type) {
    find_device(dev);
    expect(resource);
    expect(type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    *resource = resource_of(multiprocessors);
}

void api::dev_sm_resource_split_by_count(CUdevResource *groups, unsigned int *nb_groups,
                                         const CUdevResource *input, CUdevResource *remaining,
                                         unsigned int, unsigned int min_count) {
    expect(nb_groups && input && min_count <= input->sm.smCount);
    expect(input->type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    const unsigned each = (std::max(min_count, 1u) + fewest - 1) / fewest * fewest;
    const unsigned most = input->sm.smCount / each;
    *nb_groups = groups ? std::min(*nb_groups, most) : most;
    for (unsigned i = 0; groups && i < *nb_groups; i++) {
        groups[i] = resource_of(each);
    }
    if (remaining) {
        *remaining = resource_of(input->sm.smCount - *nb_groups * each);
    }
}

void api::dev_resource_generate_desc(CUdevResourceDesc *ph_desc, CUdevResource *resources,
                                     unsigned int nb_resources) {
    expect(ph_desc && resources && nb_resources != 0);
    unsigned count = 0;
    for (unsigned i = 0; i < nb_resources; i++) {
        expect(resources[i].type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
        count += resources[i].sm.smCount;
    }
    *ph_desc = reinterpret_cast<CUdevResourceDesc>(uintptr_t(count));
}

void api::green_ctx_create(CUgreenCtx *ph_ctx, CUdevResourceDesc desc, CUdevice dev,
                           unsigned int flags) {
    Device &device = find_device(dev);
    expect(ph_ctx && desc && flags == CU_GREEN_CTX_DEFAULT_STREAM);
    CUcontext primary;
    device_primary_ctx_retain(&primary, dev);
    Context *const green = make_context(device, device.primary_flags, nullptr);
    green->root = sim().contexts.find(primary);
    green->root->greens.insert(green);
    *ph_ctx = green_of(*green);
}

void api::green_ctx_destroy(CUgreenCtx h_ctx) {
    Context &green = find_green(h_ctx);
    const CUdevice device = green.device->ordinal;
    end_context(&green);
    device_primary_ctx_release(device);
}

void api::ctx_from_green_ctx(CUcontext *p_context, CUgreenCtx h_ctx) {
    tell(p_context, find_green(h_ctx).handle);
}

void api::green_ctx_stream_create(CUstream *ph_stream, CUgreenCtx green_ctx, unsigned int flags,
                                  int priority) {
    Context &green = find_green(green_ctx);
    expect(ph_stream && flags == CU_STREAM_NON_BLOCKING);
    priority = std::clamp(priority, greatest_stream_priority, 0);
    *ph_stream = make_stream(green, Stream::Kind::user, flags, priority)->handle;
}

void api::stream_get_green_ctx(CUstream h_stream, CUgreenCtx *ph_ctx) {
    tell(ph_ctx, green_of(*find_stream(h_stream).context));
}

} // namespace simcuda
#endif
