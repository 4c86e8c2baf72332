#include "core/array.h"

#include "api/check.h"

#include <algorithm>

using namespace emm;

emm_status emm_array_validate(const emm_array *array) {
    EMM_REQUIRE(array);
    return api::guarded([&] {
        core::Layout layout;
        return core::validate(*array, "array", layout);
    });
}

emm_status emm_array_get_layout(const emm_array *array, emm_array_layout *ret_layout,
                                int64_t *ret_strides) {
    EMM_REQUIRE(array);
    EMM_REQUIRE(ret_layout);
    return api::guarded([&] {
        core::Layout found;
        const emm_status status = core::validate(*array, "array", found);
        if (status != EMM_OK) {
            return status;
        }
        emm_array_layout layout = {};
        layout.struct_size = sizeof layout;
        layout.flags = (found.c_contiguous ? EMM_ARRAY_C_CONTIGUOUS : 0) |
                       (found.f_contiguous ? EMM_ARRAY_F_CONTIGUOUS : 0);
        layout.itemsize = found.type.size;
        layout.count = found.count;
        layout.size = found.size;
        layout.offset = found.offset;
        emm_copy_sized(ret_layout, &layout);
        if (ret_strides) {
            std::copy_n(found.strides, array->ndim, ret_strides);
        }
        return status;
    });
}
