#include "core/arrays/layout.h"

#include "observe/error.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace emm::core {
namespace {

using observe::refuse;

emm_status check_shape(const emm_array &array, const std::string &where) {
    if (array.ndim > EMM_ARRAY_MAX_DIMENSIONS) {
        return refuse("{}: ndim: expected at most 64, found {}", where, array.ndim);
    }
    if (array.ndim != 0 && !array.shape) {
        return refuse("{}: shape: expected {} sizes, found NULL", where, array.ndim);
    }
    for (uint32_t i = 0; i < array.ndim; ++i) {
        if (array.shape[i] < 0) {
            return refuse("{}: shape[{}]: expected 0 or more, found {}", where, i, array.shape[i]);
        }
    }
    return EMM_OK;
}

// The bytes of the elements themselves; false if there are more than a signed number can tell.
bool multiply(std::span<const int64_t> shape, Layout &layout) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
        return true;
    }
    uint64_t count = 1;
    int64_t bytes = 0;
    for (const int64_t size : shape) {
        if (__builtin_mul_overflow(count, static_cast<uint64_t>(size), &count)) {
            return false;
        }
    }
    layout.count = count;
    return !__builtin_mul_overflow(count, layout.type.size, &bytes);
}

// Those of an empty array may wrap: no element is reached by them.
void fill_c_strides(std::span<const int64_t> shape, Layout &layout) {
    auto stride = static_cast<int64_t>(layout.type.size);
    for (size_t i = shape.size(); i-- > 0;) {
        layout.strides[i] = stride;
        __builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride);
    }
}

// Whether the elements follow one another without a gap, the last dimension fastest or the first.
bool is_contiguous(std::span<const int64_t> shape, const Layout &layout, bool last_fastest) {
    auto expected = static_cast<int64_t>(layout.type.size);
    for (size_t k = 0; k < shape.size(); ++k) {
        const size_t i = last_fastest ? shape.size() - 1 - k : k;
        if (shape[i] != 1 && layout.strides[i] != expected) {
            return false;
        }
        expected *= shape[i];
    }
    return true;
}

// How far the elements reach below and above the one whose indices are all 0.
bool reach(std::span<const int64_t> shape, Layout &layout) {
    int64_t low = 0, high = static_cast<int64_t>(layout.type.size), size = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
        int64_t way = 0;
        if (__builtin_mul_overflow(shape[i] - 1, layout.strides[i], &way)) {
            return false;
        }
        int64_t &end = way < 0 ? low : high;
        if (__builtin_add_overflow(end, way, &end)) {
            return false;
        }
    }
    if (__builtin_sub_overflow(high, low, &size)) {
        return false;
    }
    layout.offset = static_cast<uint64_t>(-low);
    layout.size = static_cast<uint64_t>(size);
    return true;
}

} // namespace

std::string text_of(std::span<const int64_t> shape) {
    return fmt::format("({})", fmt::join(shape, ", "));
}

emm_status measure(const emm_array &array, const std::string &where, Layout &ret_layout) {
    Layout layout;
    EMM_TRY(check_shape(array, where));
    EMM_TRY(parse_typestr(array.typestr, where, layout.type));
    const auto shape = shape_of(array);
    bool fits = multiply(shape, layout);
    const bool empty = layout.count == 0 || layout.type.size == 0;
    if (fits && array.strides) {
        std::copy_n(array.strides, array.ndim, layout.strides);
    } else if (fits) {
        fill_c_strides(shape, layout);
    }
    fits = fits && (empty || reach(shape, layout));
    if (!fits) {
        return refuse("{}: shape {} with elements of {} bytes{} is larger than all memory", where,
                      text_of(shape), layout.type.size, array.strides ? " and these strides" : "");
    }
    layout.c_contiguous = empty || is_contiguous(shape, layout, true);
    layout.f_contiguous = empty || is_contiguous(shape, layout, false);
    ret_layout = layout;
    return EMM_OK;
}

} // namespace emm::core
