#include "core/arrays/exchange.h"
#include "driver/driver.h"
#include "observe/error.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace emm::core {
namespace {

// Runs `function` with the context current.
template <class Function> emm_status in(emm_context &context, Function function) {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    return function();
}

emm_status find(emm_context &context, const emm_array &array, const Layout &layout,
                Place &ret_place) {
    driver::Pointer pointer;
    const CUresult result = driver::look_up(context.driver, array.data, pointer);
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(
            EMM_E_INVALID_VALUE, result,
            "array: data {:#x}: CUDA does not know this memory, so {} cannot use it", array.data,
            context);
    }
    EMM_TRY(driver::check(result, "cuPointerGetAttribute"));
    ret_place.begin = pointer.device - layout.offset;
    ret_place.host = pointer.host ? static_cast<char *>(pointer.host) - layout.offset : nullptr;
    return EMM_OK;
}

bool has_stream(const emm_array &array) {
    return array.version >= 3 && array.stream != EMM_ARRAY_NO_STREAM;
}

emm_status check_extent(const emm_memory_info &info, uint64_t offset, const Layout &layout) {
    const uint64_t begin = offset - layout.offset;
    if (offset < layout.offset || begin > info.size || layout.size > info.size - begin) {
        return observe::refuse("array: its elements need {} bytes, {} of them before offset {}, "
                               "and the memory has {} bytes",
                               layout.size, layout.offset, offset, info.size);
    }
    return EMM_OK;
}

} // namespace

emm_status take_over(emm_context &context, const emm_array &array, const Layout &layout,
                     emm_stream stream, uint32_t flags, Place &ret_place) {
    if (layout.size == 0) {
        return EMM_OK;
    }
    return in(context, [&]() -> emm_status {
        Place place;
        EMM_TRY(find(context, array, layout, place));
        if (has_stream(array) && (flags & EMM_ARRAY_NO_SYNC) == 0) {
            EMM_TRY(driver::order(context.driver, array.stream, stream));
        }
        ret_place = place;
        return EMM_OK;
    });
}

emm_status lay_out(const emm_memory_info &info, uint64_t offset, bool host, emm_array &array,
                   Layout &ret_layout) {
    if (info.state == EMM_MEMORY_FREED) {
        return observe::fail(EMM_E_ALREADY_FREED, 0, "array: its memory has been freed");
    }
    if (info.state != EMM_MEMORY_LIVE) {
        return observe::fail(
            EMM_E_NOT_OWNED, 0,
            "array: its memory is lost: its context was reset, was retired or has died");
    }
    Layout layout;
    EMM_TRY(measure(array, "array", layout));
    EMM_TRY(check_extent(info, offset, layout));
    const uint64_t start =
        info.ptr == 0 && host ? reinterpret_cast<uintptr_t>(info.host) : info.ptr;
    if (layout.size != 0 && start == 0) {
        return observe::refuse(
            "array: its host memory has no device address; allocate it with EMM_HOST_MAPPED");
    }
    array.struct_size = sizeof array;
    array.data = layout.size == 0 ? 0 : start + offset;
    array.strides = layout.c_contiguous ? nullptr : array.strides;
    array.read_only |= (info.flags & EMM_HOST_READ_ONLY) != 0;
    array.stream = EMM_ARRAY_NO_STREAM;
    return validate(array, "array", ret_layout);
}

emm_status hand_over(const emm_memory_info &info, uint64_t offset, emm_stream stream,
                     emm_array &array) {
    emm_array laid = array;
    Layout layout;
    EMM_TRY(lay_out(info, offset, false, laid, layout));
    if (stream != EMM_STREAM_UNORDERED && laid.version == 2) {
        EMM_TRY(in(*info.context, [&] {
            return driver::order(info.context->driver, stream, EMM_STREAM_UNORDERED);
        }));
    } else if (stream != EMM_STREAM_UNORDERED) {
        laid.stream = stream == EMM_STREAM_LEGACY ? EMM_ARRAY_STREAM_LEGACY : stream;
    }
    array = laid;
    return EMM_OK;
}

namespace {

emm_status type_of(const ElementType &element, const char *typestr, dlpack::DataType &ret_type) {
    static_assert(std::endian::native == std::endian::little);
    constexpr std::pair<char, uint8_t> codes[] = {{'b', dlpack::boolean},
                                                  {'i', dlpack::integer},
                                                  {'u', dlpack::unsigned_integer},
                                                  {'f', dlpack::real},
                                                  {'c', dlpack::complex}};
    const auto known = std::find_if(std::begin(codes), std::end(codes),
                                    [&](const auto &code) { return code.first == element.kind; });
    const bool is_number = known != std::end(codes);
    const uint64_t largest = !is_number ? 0 : element.kind == 'c' ? 16 : 8;
    if (element.size > largest || (element.order == '>' && element.size > 1)) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                             "DLPack: typestr \"{}\": expected a number of this machine's byte "
                             "order and at most {} bytes",
                             typestr, largest == 16 ? 16 : 8);
    }
    ret_type = {is_number ? known->second : uint8_t{0}, static_cast<uint8_t>(element.size * 8), 1};
    return EMM_OK;
}

emm_status check_type(const emm_dlpack_type &type, const ElementType &element,
                      dlpack::DataType &ret_type) {
    const uint64_t bits = uint64_t{type.bits} * type.lanes;
    if (bits == 0 || (bits + 7) / 8 != element.size) {
        return observe::refuse(
            "DLPack: type: expected the {} bytes of typestr, found {} lanes of {} bits",
            element.size, type.lanes, type.bits);
    }
    ret_type = {type.code, type.bits, type.lanes};
    return EMM_OK;
}

// For memory that others allocated, the driver knows the kind.
emm_status device_of_external(const emm_memory_info &info, dlpack::Device &ret_device) {
    emm_context &context = *info.context;
    const driver::Current current(context.driver, context.cuda_context, context.id);
    driver::Pointer pointer;
    const uint64_t address = info.ptr != 0 ? info.ptr : reinterpret_cast<uintptr_t>(info.host);
    EMM_TRY(current.status());
    if (driver::look_up(context.driver, address, pointer) != CUDA_SUCCESS) {
        ret_device = info.ptr != 0 ? dlpack::Device{dlpack::cuda, context.device}
                                   : dlpack::Device{dlpack::cpu, 0};
    } else if (pointer.managed) {
        ret_device = {dlpack::cuda_managed, 0};
    } else {
        ret_device = pointer.on_host ? dlpack::Device{dlpack::cuda_host, 0}
                                     : dlpack::Device{dlpack::cuda, context.device};
    }
    return EMM_OK;
}

emm_status device_of(const emm_memory_info &info, dlpack::Device &ret_device) {
    switch (info.kind) {
    case EMM_KIND_PINNED:
    case EMM_KIND_MAPPED:
        ret_device = {dlpack::cuda_host, 0};
        return EMM_OK;
    case EMM_KIND_MANAGED:
        ret_device = {dlpack::cuda_managed, 0};
        return EMM_OK;
    case EMM_KIND_EXTERNAL:
        return device_of_external(info, ret_device);
    default:
        ret_device = {dlpack::cuda, info.context->device};
        return EMM_OK;
    }
}

emm_status count_strides(const Layout &layout, uint32_t ndim, std::vector<int64_t> &ret_strides) {
    const auto size = static_cast<int64_t>(layout.type.size);
    std::vector<int64_t> strides(layout.strides, layout.strides + ndim);
    for (int64_t &stride : strides) {
        if (size == 0 || stride % size != 0) {
            return observe::refuse(
                "DLPack: strides: expected multiples of the {} bytes of an element, found {}", size,
                stride);
        }
        stride /= size;
    }
    ret_strides = std::move(strides);
    return EMM_OK;
}

// Consumers of pinned memory read by its host address.
void *data_of(const emm_memory_info &info, const dlpack::Device &device, uint64_t offset) {
    const bool on_host = device.type == dlpack::cuda_host || device.type == dlpack::cpu;
    const uint64_t start = on_host && info.host ? reinterpret_cast<uintptr_t>(info.host) : info.ptr;
    return reinterpret_cast<void *>(static_cast<uintptr_t>(start + offset));
}

} // namespace

emm_status describe(const emm_memory_info &info, uint64_t offset, const emm_array &array,
                    const emm_dlpack_type *type, Tensor &ret_tensor) {
    if (array.mask || array.descr) {
        return observe::refuse("DLPack: cannot express the array's {}",
                               array.mask ? "mask" : "descr");
    }
    emm_array laid = array;
    Layout layout;
    Tensor tensor;
    EMM_TRY(lay_out(info, offset, true, laid, layout));
    EMM_TRY(type ? check_type(*type, layout.type, tensor.tensor.dtype)
                 : type_of(layout.type, array.typestr, tensor.tensor.dtype));
    EMM_TRY(device_of(info, tensor.tensor.device));
    EMM_TRY(count_strides(layout, array.ndim, tensor.strides));
    tensor.tensor.data = layout.size == 0 ? nullptr : data_of(info, tensor.tensor.device, offset);
    tensor.tensor.ndim = static_cast<int32_t>(array.ndim);
    tensor.shape.assign(array.shape, array.shape + array.ndim);
    tensor.read_only = laid.read_only != 0;
    ret_tensor = std::move(tensor);
    return EMM_OK;
}

} // namespace emm::core
