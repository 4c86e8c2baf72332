#include "call.h"
#include "simulator.h"

#include <algorithm>
#include <memory>

namespace simcuda {
namespace {

constexpr unsigned known_flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
constexpr size_t faces = 6;

// 0: an unknown format.
uint64_t bytes_of(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

bool is_cubemap(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    return (descriptor.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
}

bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    return (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
}

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    const unsigned channels = descriptor.NumChannels;
    const bool is_deep = descriptor.Depth != 0;
    if (descriptor.Width == 0 || (channels != 1 && channels != 2 && channels != 4) ||
        (is_deep && descriptor.Height == 0 && !is_layered(descriptor)) ||
        (is_layered(descriptor) && !is_deep)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_cubemap(descriptor) &&
        (descriptor.Width != descriptor.Height || !is_deep ||
         (is_layered(descriptor) ? descriptor.Depth % faces != 0 : descriptor.Depth != faces))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return descriptor.Flags & ~known_flags || bytes_of(descriptor.Format) == 0
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

uint64_t size_of(const CUDA_ARRAY3D_DESCRIPTOR &descriptor, unsigned level) {
    const auto extent = [level](size_t whole, bool shrinks) {
        return std::max<uint64_t>(shrinks ? whole >> level : whole, 1);
    };
    const bool shrinks = !is_layered(descriptor) && !is_cubemap(descriptor);
    return extent(descriptor.Width, true) * extent(descriptor.Height, true) *
           extent(descriptor.Depth, shrinks) * descriptor.NumChannels * bytes_of(descriptor.Format);
}

// The number of levels down to one element.
unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR &descriptor) {
    const bool shrinks = !is_layered(descriptor) && !is_cubemap(descriptor);
    size_t longest =
        std::max({descriptor.Width, descriptor.Height, shrinks ? descriptor.Depth : size_t(0)});
    unsigned levels = 1;
    for (; longest > 1; longest /= 2) {
        levels++;
    }
    return levels;
}

template <class Handle>
void make(Handles<Array, Handle> &handles, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
          unsigned levels, Handle *ret_handle) {
    Context &context = current_root();
    expect(ret_handle && descriptor && levels != 0);
    expect_success(check(*descriptor));
    auto array = std::make_unique<Array>();
    array->context = &context;
    array->descriptor = *descriptor;
    for (unsigned level = 0; level < std::min(levels, most_levels(*descriptor)); level++) {
        array->size += size_of(*descriptor, level);
    }
    const auto offset = context.device->take(array->size);
    expect(offset.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
    array->offset = *offset;
    *ret_handle = handles.insert(array.release());
}

template <class Handle> Array &array_of(Handles<Array, Handle> &handles, Handle handle) {
    return find_object(handles, handle, "array", CUDA_ERROR_INVALID_HANDLE);
}

template <class Handle> void end(Handles<Array, Handle> &handles, Handle handle) {
    const Array &array = array_of(handles, handle);
    array.context->device->give(array.offset, array.size);
    handles.destroy(handle);
}

template <class Handle> void end_all(Handles<Array, Handle> &handles, const Context &context) {
    for (const Handle handle :
         handles.of([&](const Array &array) { return array.context == &context; })) {
        end(handles, handle);
    }
}

// Destroys an array, and waits for all work that could use it.
template <class Handle> void destroy(Handles<Array, Handle> &handles, Handle handle) {
    wait_for(*array_of(handles, handle).context);
    end(handles, handle); // unless another thread has destroyed it
}

} // namespace

void end_arrays(Context &context) {
    end_all(sim().plain_arrays, context);
    end_all(sim().mipmapped_arrays, context);
}

void api::array_create(CUarray *p_handle, const CUDA_ARRAY_DESCRIPTOR *p_allocate_array) {
    expect(p_allocate_array);
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = p_allocate_array->Width;
    descriptor.Height = p_allocate_array->Height;
    descriptor.Format = p_allocate_array->Format;
    descriptor.NumChannels = p_allocate_array->NumChannels;
    array_3d_create(p_handle, &descriptor);
}

void api::array_3d_create(CUarray *p_handle, const CUDA_ARRAY3D_DESCRIPTOR *p_allocate_array) {
    make(sim().plain_arrays, p_allocate_array, 1, p_handle);
}

void api::array_get_descriptor(CUDA_ARRAY_DESCRIPTOR *p_array_descriptor, CUarray h_array) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    array_3d_get_descriptor(&descriptor, h_array);
    expect(p_array_descriptor);
    *p_array_descriptor = {descriptor.Width, descriptor.Height, descriptor.Format,
                           descriptor.NumChannels};
}

void api::array_3d_get_descriptor(CUDA_ARRAY3D_DESCRIPTOR *p_array_descriptor, CUarray h_array) {
    tell(p_array_descriptor, array_of(sim().plain_arrays, h_array).descriptor);
}

void api::array_destroy(CUarray h_array) {
    destroy(sim().plain_arrays, h_array);
}

void api::mipmapped_array_create(CUmipmappedArray *p_handle,
                                 const CUDA_ARRAY3D_DESCRIPTOR *p_mipmapped_array_desc,
                                 unsigned int num_mipmap_levels) {
    make(sim().mipmapped_arrays, p_mipmapped_array_desc, num_mipmap_levels, p_handle);
}

void api::mipmapped_array_destroy(CUmipmappedArray h_mipmapped_array) {
    destroy(sim().mipmapped_arrays, h_mipmapped_array);
}

} // namespace simcuda
