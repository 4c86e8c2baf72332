#include "core/arrays/exchange.h"

#include "driver/driver.h"
#include "observe/error.h"

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
        return observe::fail(EMM_E_INVALID_VALUE, result,
                             "array: data {:#x}: expected memory that {} can use, found none that "
                             "CUDA knows",
                             array.data, context);
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
        return observe::refuse("array: expected it to stay inside the memory of {} bytes, found "
                               "that it takes {} bytes, {} of them before offset {}",
                               info.size, layout.size, layout.offset, offset);
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
        return observe::fail(EMM_E_ALREADY_FREED, 0, "array: expected live memory, found it freed");
    }
    if (info.state != EMM_MEMORY_LIVE) {
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "array: expected live memory, found that its context was reset, "
                             "retired or has died");
    }
    Layout layout;
    EMM_TRY(measure(array, "array", layout));
    EMM_TRY(check_extent(info, offset, layout));
    const uint64_t start =
        info.ptr == 0 && host ? reinterpret_cast<uintptr_t>(info.host) : info.ptr;
    if (layout.size != 0 && start == 0) {
        return observe::refuse("array: expected memory with a device address, found host memory "
                               "that was not given one (EMM_HOST_MAPPED)");
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

} // namespace emm::core
