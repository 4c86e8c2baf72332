#include "core/arrays/layout.h"

#include "observe/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace emm::core {
namespace {

constexpr uint64_t largest_element = INT32_MAX; // NumPy's limit
constexpr unsigned deepest_descr = 16;
constexpr uint32_t most_fields = 65536; // of a descr, one that is reached twice counting twice

using observe::refuse;

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
        return refuse("{}objects of a host program mean nothing to a device", said);
    }
    return refuse("{}expected a kind of t b i u f c m M S U V, found '{}'", said, kind);
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
        return refuse("{}expected a number of bytes up to 2147483647 behind the kind", said);
    }
    const std::string_view rest(stop, static_cast<size_t>(end - stop));
    if (!rest.empty() && !(std::strchr("mM", type.kind) && is_unit(rest))) {
        return refuse("{}expected nothing behind the number, found \"{}\"", said, rest);
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

// How deep in the descr a list of fields is, and how many fields may follow in all: lists that
// share their parts describe more fields than there is memory or time.
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

} // namespace emm::core
