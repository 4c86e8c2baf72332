// A user of cuda::mr with emm's resource. Compiled only: cuda::mr needs CUDA's runtime.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // CCCL before 3.1

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <emm/emm.hpp>

using Resource = emm::DeviceResource<cuda::mr::device_accessible>;

static_assert(cuda::has_property<Resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<Resource, cuda::mr::host_accessible>);
static_assert(!cuda::has_property<emm::DeviceResource<>, cuda::mr::device_accessible>);

#if CCCL_VERSION < 3001000

static_assert(cuda::mr::resource<Resource>);
static_assert(cuda::mr::async_resource<Resource>);
static_assert(cuda::mr::async_resource_with<Resource, cuda::mr::device_accessible>);

void use(Resource &resource, cuda::stream_ref stream) {
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> reference(resource);
    reference.deallocate(reference.allocate(100, 8), 100, 8);
    reference.deallocate_async(reference.allocate_async(100, 8, stream), 100, 8, stream);
}

#else

static_assert(cuda::mr::synchronous_resource<Resource>);
static_assert(cuda::mr::resource<Resource>);
static_assert(cuda::mr::resource_with<Resource, cuda::mr::device_accessible>);

void use(Resource &resource, cuda::stream_ref stream) {
    cuda::mr::resource_ref<cuda::mr::device_accessible> reference(resource);
    reference.deallocate_sync(reference.allocate_sync(100, 8), 100, 8);
    reference.deallocate(stream, reference.allocate(stream, 100, 8), 100, 8);
}

#endif

// The example of emm.hpp.
void fill(cuda::stream_ref stream);

void fill(cuda::stream_ref stream) {
    emm::DeviceResource<cuda::mr::device_accessible> memory(emm::context_for_device(0));
    void *block = memory.allocate_async(1 << 20, 256, stream);
    memory.deallocate_async(block, 1 << 20, 256, stream);
}
