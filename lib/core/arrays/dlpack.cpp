#include "core/arrays/dlpack.h"

#include "core/arrays/exchange.h"
#include "driver/driver.h"
#include "observe/error.h"

#include <bit>

namespace emm::core {
namespace {

emm_status type_of(const ElementType &element, const char *typestr, dlpack::DataType &ret_type) {
    static_assert(std::endian::native == std::endian::little);
    uint8_t code = 0;
    uint64_t largest = 8;
    switch (element.kind) {
    case 'b':
        code = dlpack::boolean;
        break;
    case 'i':
        code = dlpack::integer;
        break;
    case 'u':
        code = dlpack::unsigned_integer;
        break;
    case 'f':
        code = dlpack::real;
        break;
    case 'c':
        code = dlpack::complex;
        largest = 16;
        break;
    default:
        largest = 0;
    }
    if (element.size > largest || (element.order == '>' && element.size > 1)) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                             "DLPack: typestr \"{}\": expected a number of this machine's byte "
                             "order and at most {} bytes",
                             typestr, largest == 16 ? 16 : 8);
    }
    ret_type = {code, static_cast<uint8_t>(element.size * 8), 1};
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

// The driver knows what memory is that others allocated.
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

// The host address is what consumers of pinned memory read.
void *data_of(const emm_memory_info &info, const dlpack::Device &device, uint64_t offset) {
    const bool on_host = device.type == dlpack::cuda_host || device.type == dlpack::cpu;
    const uint64_t start = on_host && info.host ? reinterpret_cast<uintptr_t>(info.host) : info.ptr;
    return reinterpret_cast<void *>(static_cast<uintptr_t>(start + offset));
}

} // namespace

emm_status describe(const emm_memory_info &info, uint64_t offset, const emm_array &array,
                    const emm_dlpack_type *type, Tensor &ret_tensor) {
    if (array.mask || array.descr) {
        return observe::refuse("DLPack: expected an array without a mask and a descr, found a {}",
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
