#include "core/arrays/array.h"

#include "observe/error.h"

namespace emm::core {
namespace {

using observe::refuse;

emm_status check_head(const emm_array &array, const std::string &where) {
    if (array.struct_size < sizeof array) {
        return refuse("{}: struct_size: expected at least {}, found {}", where, sizeof array,
                      array.struct_size);
    }
    if (array.version != 2 && array.version != 3) {
        return refuse("{}: version: expected 2 or 3, found {}{}", where, array.version,
                      array.version < 2
                          ? "; version 0 or 1 leaves open what an array without strides "
                            "and an empty one are: one that keeps to version 2 may say so"
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
        return refuse("{}: data {:#x}: expected shape {} to stay in memory, found that its strides "
                      "lead beyond either end",
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
                      "stream, found 0, which could mean each of the first three",
                      where);
    }
    return EMM_OK;
}

// Sizes are compared from the last one on; a size of 1 stands for any.
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
    if (mask.mask) { // and so no mask leads back to its array
        return refuse("{}: mask: expected NULL, found a mask of the mask", where);
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
