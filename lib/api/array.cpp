#include "core/arrays/exchange.h"
#include "core/handles/handle.h"

#include "api/check.h"

#include <algorithm>
#include <memory>

using namespace emm;

namespace {

void tell(const core::Layout &found, emm_array_layout *ret_layout) {
    auto layout = observe::sized<emm_array_layout>();
    layout.flags = (found.c_contiguous ? EMM_ARRAY_C_CONTIGUOUS : 0) |
                   (found.f_contiguous ? EMM_ARRAY_F_CONTIGUOUS : 0);
    layout.itemsize = found.type.size;
    layout.count = found.count;
    layout.size = found.size;
    layout.offset = found.offset;
    emm_copy_sized(ret_layout, &layout);
}

} // namespace

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
    EMM_REQUIRE_SIZED(ret_layout);
    return api::guarded([&]() -> emm_status {
        core::Layout found;
        EMM_TRY(core::validate(*array, "array", found));
        tell(found, ret_layout);
        if (ret_strides) {
            std::copy_n(found.strides, array->ndim, ret_strides);
        }
        return EMM_OK;
    });
}

emm_status emm_array_import(emm_context *context, const emm_array *array, emm_stream stream,
                            uint32_t flags, void *owner, emm_finalizer finalizer,
                            emm_memory **ret_memory, emm_array_layout *ret_layout) {
    EMM_ENTER(context, array, ret_memory);
    EMM_REQUIRE_FLAGS(flags, EMM_ARRAY_NO_SYNC, "0 or EMM_ARRAY_NO_SYNC");
    if (ret_layout) {
        EMM_REQUIRE_SIZED(ret_layout);
    }
    return api::guarded([&]() -> emm_status {
        core::Layout layout;
        core::Place place;
        EMM_TRY(core::validate(*array, "array", layout));
        EMM_TRY(core::admit_or_wait(*context));
        EMM_TRY(core::take_over(*context, *array, layout, stream, flags, place));
        EMM_TRY(core::make_external(*context, place.begin, place.host, layout.size, owner,
                                    finalizer, ret_memory));
        if (ret_layout) {
            tell(layout, ret_layout);
        }
        return EMM_OK;
    });
}

emm_status emm_array_export(emm_memory *memory, uint64_t offset, emm_stream stream,
                            emm_array *array) {
    EMM_ENTER(memory, array);
    return api::guarded([&] {
        auto info = observe::sized<emm_memory_info>();
        EMM_TRY(core::describe(*memory, &info));
        return core::hand_over(info, offset, stream, *array);
    });
}

namespace {

// The consumer gets `managed`, and the other members live as long.
template <class Managed> struct Shared {
    Managed managed = {};
    core::Tensor described;
    emm_memory *memory = nullptr;

    static void release(Managed *self) {
        auto *shared = static_cast<Shared *>(self->manager_ctx);
        core::release(*shared->memory);
        delete shared;
    }
};

template <class Managed>
emm_status share(emm_memory *memory, std::unique_ptr<Shared<Managed>> shared,
                 Managed **ret_tensor) {
    EMM_TRY(core::retain(*memory));
    Managed &managed = shared->managed;
    managed.dl_tensor = shared->described.tensor;
    managed.dl_tensor.shape = shared->described.shape.data();
    managed.dl_tensor.strides = shared->described.strides.data();
    managed.deleter = &Shared<Managed>::release;
    managed.manager_ctx = shared.get();
    shared->memory = memory;
    *ret_tensor = &shared.release()->managed;
    return EMM_OK;
}

template <class Managed>
emm_status describe(emm_memory *memory, uint64_t offset, const emm_array &array,
                    const emm_dlpack_type *type, Shared<Managed> &shared) {
    auto info = observe::sized<emm_memory_info>();
    EMM_TRY(core::describe(*memory, &info));
    return core::describe(info, offset, array, type, shared.described);
}

} // namespace

emm_status emm_dlpack_export(emm_memory *memory, uint64_t offset, const emm_array *array,
                             const emm_dlpack_type *type, DLManagedTensorVersioned **ret_tensor) {
    EMM_ENTER(memory, array, ret_tensor);
    return api::guarded([&] {
        auto shared = std::make_unique<Shared<DLManagedTensorVersioned>>();
        EMM_TRY(describe(memory, offset, *array, type, *shared));
        shared->managed.version = {dlpack::major_version, dlpack::minor_version};
        shared->managed.flags = shared->described.read_only ? dlpack::read_only : 0;
        return share(memory, std::move(shared), ret_tensor);
    });
}

emm_status emm_dlpack_export_unversioned(emm_memory *memory, uint64_t offset,
                                         const emm_array *array, const emm_dlpack_type *type,
                                         DLManagedTensor **ret_tensor) {
    EMM_ENTER(memory, array, ret_tensor);
    return api::guarded([&] {
        auto shared = std::make_unique<Shared<DLManagedTensor>>();
        EMM_TRY(describe(memory, offset, *array, type, *shared));
        if (shared->described.read_only) {
            return observe::fail(
                EMM_E_INVALID_VALUE, 0,
                "DLPack: the array is read-only, which only the versioned struct can express");
        }
        return share(memory, std::move(shared), ret_tensor);
    });
}
