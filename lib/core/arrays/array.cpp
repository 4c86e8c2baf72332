#include "core/arrays/array.h"

#include "observe/error.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>

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

// Computes the bytes of the elements themselves; false if a signed number cannot hold them.
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

// The strides of an empty array may wrap, because they reach no element.
void fill_c_strides(std::span<const int64_t> shape, Layout &layout) {
    auto stride = static_cast<int64_t>(layout.type.size);
    for (size_t i = shape.size(); i-- > 0;) {
        layout.strides[i] = stride;
        __builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride);
    }
}

// Whether the elements follow one another without a gap, with the last dimension fastest, or with
// the first.
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

// Computes how far the elements reach below and above the element whose indices are all 0.
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

namespace {

constexpr uint64_t largest_element = INT32_MAX; // NumPy's limit
constexpr unsigned deepest_descr = 16;
constexpr uint32_t most_fields = 65536; // of a descr; a field that is reached twice counts twice

bool is_one_of(uint64_t size, std::initializer_list<uint64_t> sizes) {
    return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
}

bool has_such_a_size(char kind, uint64_t number) {
    switch (kind) {
    case 'b':
        return number == 1;
    case 'i':
    case 'u':
        return is_one_of(number, {1, 2, 4, 8, 16});
    case 'f':
        return is_one_of(number, {2, 4, 8, 12, 16});
    case 'c':
        return is_one_of(number, {4, 8, 16, 24, 32});
    case 'm':
    case 'M':
        return number == 8;
    default:
        return true;
    }
}

uint64_t bytes_of(char kind, uint64_t number) {
    return kind == 't' ? (number + 7) / 8 : kind == 'U' ? number * 4 : number;
}

bool needs_order(const ElementType &type) {
    return std::strchr("iufcmMU", type.kind) && type.size > 1;
}

// The unit behind a time: "[ns]".
bool is_unit(std::string_view text) {
    return text.size() > 2 && text.front() == '[' && text.back() == ']';
}

emm_status refuse_kind(char kind, const std::string &said) {
    if (kind == 'O') {
        return refuse("{}a device cannot use objects of a host program", said);
    }
    return refuse("{}expected one of the type letters t b i u f c m M S U V, found '{}'", said,
                  kind);
}

} // namespace

emm_status parse_typestr(const char *text, const std::string &where, ElementType &ret_type) {
    if (!text) {
        return refuse("{}: typestr is NULL; expected a text such as \"<f4\"", where);
    }
    const std::string_view whole(text, strnlen(text, 64));
    const std::string said = fmt::format("{}: typestr \"{}\": ", where, whole);
    if (whole.size() < 2 || !std::strchr("<>|", whole[0])) {
        return refuse("{}expected a byte order (< > or |), a kind and a number of bytes", said);
    }
    ElementType type{whole[0], whole[1], 0};
    if (!std::strchr("tbiufcmMSUV", type.kind)) {
        return refuse_kind(type.kind, said);
    }
    uint64_t number = 0;
    const char *const end = whole.data() + whole.size();
    const auto [stop, error] = std::from_chars(whole.data() + 2, end, number);
    if (error != std::errc() || number > largest_element) {
        return refuse("{}expected a number of bytes up to 2147483647 after the kind", said);
    }
    const std::string_view rest(stop, static_cast<size_t>(end - stop));
    if (!rest.empty() && !(std::strchr("mM", type.kind) && is_unit(rest))) {
        return refuse("{}expected nothing after the number, found \"{}\"", said, rest);
    }
    if (!has_such_a_size(type.kind, number)) {
        return refuse("{}there is no kind '{}' of {} bytes", said, type.kind, number);
    }
    type.size = bytes_of(type.kind, number);
    if (type.order == '|' && needs_order(type)) {
        return refuse("{}expected a byte order, < or >, for elements of several bytes", said);
    }
    ret_type = type;
    return EMM_OK;
}

namespace {

emm_status repeat(const emm_array_field &field, const std::string &where, uint64_t &size) {
    if (field.ndim > EMM_ARRAY_MAX_DIMENSIONS || (field.ndim != 0 && !field.shape)) {
        return refuse("{}: expected a shape of at most 64 dimensions, found ndim {}{}", where,
                      field.ndim, field.shape ? "" : " and shape NULL");
    }
    for (uint32_t i = 0; i < field.ndim; ++i) {
        if (field.shape[i] < 0 ||
            __builtin_mul_overflow(size, static_cast<uint64_t>(field.shape[i]), &size)) {
            return refuse("{}: shape[{}] is {}, negative or beyond all memory", where, i,
                          field.shape[i]);
        }
    }
    return EMM_OK;
}

// The depth in nested lists of fields, and how many more fields may follow in all. The total is
// bounded, because lists that share parts describe more fields than there is memory or time.
struct Walk {
    unsigned depth = 0;
    uint32_t &left;
};

emm_status measure_fields(const emm_array_field *fields, uint32_t count, const std::string &where,
                          Walk walk, uint64_t &ret_size);

emm_status measure_field(const emm_array_field &field, const std::string &where, Walk walk,
                         uint64_t &ret_size) {
    if (!field.name) {
        return refuse("{}: its name is NULL; expected a text, \"\" for padding", where);
    }
    const std::string named =
        fmt::format("{} \"{}\"", where, std::string_view(field.name, strnlen(field.name, 64)));
    if ((field.typestr != nullptr) == (field.fields != nullptr)) {
        return refuse("{}: expected either a typestr or fields, found {}", named,
                      field.typestr ? "both" : "neither");
    }
    uint64_t size = 0;
    ElementType type;
    if (field.typestr) {
        EMM_TRY(parse_typestr(field.typestr, named, type));
        size = type.size;
    } else {
        EMM_TRY(measure_fields(field.fields, field.field_count, named, walk, size));
    }
    EMM_TRY(repeat(field, named, size));
    ret_size = size;
    return EMM_OK;
}

emm_status measure_fields(const emm_array_field *fields, uint32_t count, const std::string &where,
                          Walk walk, uint64_t &ret_size) {
    if (walk.depth == deepest_descr) {
        return refuse("{}: expected fields at most 16 deep, found more", where);
    }
    if (count > walk.left) {
        return refuse("{}: expected at most {} fields in all, found more", where, most_fields);
    }
    walk.left -= count;
    ++walk.depth;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint64_t size = 0;
        EMM_TRY(measure_field(fields[i], fmt::format("{}, field {}", where, i), walk, size));
        if (__builtin_add_overflow(sum, size, &sum)) {
            return refuse("{}: its fields are larger than all memory", where);
        }
    }
    ret_size = sum;
    return EMM_OK;
}

} // namespace

emm_status check_descr(const emm_array_field *fields, uint32_t count, uint64_t size,
                       const std::string &where) {
    uint64_t found = 0;
    uint32_t left = most_fields;
    EMM_TRY(measure_fields(fields, count, where + ", descr", Walk{0, left}, found));
    if (found != size) {
        return refuse("{}: descr: expected the {} bytes of typestr, found {}", where, size, found);
    }
    return EMM_OK;
}

namespace {

emm_status check_head(const emm_array &array, const std::string &where) {
    if (array.struct_size < sizeof array) {
        return refuse("{}: struct_size: expected at least {}, found {}", where, sizeof array,
                      array.struct_size);
    }
    if (array.version != 2 && array.version != 3) {
        return refuse("{}: version: expected 2 or 3, found {}{}", where, array.version,
                      array.version < 2
                          ? "; versions 0 and 1 do not define an array without strides or an empty "
                            "one; an array that follows version 2 may say 2"
                          : "");
    }
    if (array.read_only > 1) {
        return refuse("{}: read_only: expected 0 or 1, found {}", where, array.read_only);
    }
    return EMM_OK;
}

emm_status check_data(const emm_array &array, const Layout &layout, const std::string &where) {
    if (layout.size == 0 && array.data != 0) {
        return refuse("{}: data: expected 0 for an array of no bytes, found {:#x}", where,
                      array.data);
    }
    if (layout.size != 0 && array.data == 0) {
        return refuse("{}: data: expected the address of {} bytes, found 0", where, layout.size);
    }
    uint64_t end = 0;
    if (array.data < layout.offset ||
        __builtin_add_overflow(array.data - layout.offset, layout.size, &end)) {
        return refuse("{}: data {:#x}: the strides of shape {} lead outside the address space",
                      where, array.data, text_of(shape_of(array)));
    }
    return EMM_OK;
}

emm_status check_stream(const emm_array &array, const std::string &where) {
    const auto stream = reinterpret_cast<uintptr_t>(array.stream);
    if (array.version == 2 && stream != 0 && array.stream != EMM_ARRAY_NO_STREAM) {
        return refuse("{}: stream: expected none in version 2, found {:#x}", where, stream);
    }
    if (array.version == 3 && stream == 0) {
        return refuse("{}: stream: expected EMM_ARRAY_NO_STREAM, 1 (legacy), 2 (per thread) or a "
                      "stream, found 0, which could mean any of the first three",
                      where);
    }
    return EMM_OK;
}

// Compares sizes from the last dimension on; a size of 1 matches any.
bool broadcasts_to(std::span<const int64_t> from, std::span<const int64_t> to) {
    if (from.size() > to.size()) {
        return false;
    }
    const auto tail = to.last(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] != 1 && from[i] != tail[i]) {
            return false;
        }
    }
    return true;
}

emm_status check_mask(const emm_array &mask, const emm_array &array, const std::string &where) {
    Layout layout;
    EMM_TRY(check_head(mask, where));
    if (mask.mask) { // so no chain of masks leads back to the array
        return refuse("{}: mask: a mask cannot have a mask", where);
    }
    EMM_TRY(validate(mask, where, layout));
    if (!broadcasts_to(shape_of(mask), shape_of(array))) {
        return refuse("{}: shape: expected one that broadcasts to {}, found {}", where,
                      text_of(shape_of(array)), text_of(shape_of(mask)));
    }
    return EMM_OK;
}

} // namespace

emm_status validate(const emm_array &array, const std::string &where, Layout &ret_layout) {
    Layout layout;
    EMM_TRY(check_head(array, where));
    EMM_TRY(measure(array, where, layout));
    EMM_TRY(check_data(array, layout, where));
    if (array.descr) {
        EMM_TRY(check_descr(array.descr, array.descr_count, layout.type.size, where));
    }
    if (array.mask) {
        EMM_TRY(check_mask(*array.mask, array, where + ", mask"));
    }
    EMM_TRY(check_stream(array, where));
    ret_layout = layout;
    return EMM_OK;
}

} // namespace emm::core
