#include "core/arrays/dlpack.h"
#include "core/handles/handle.h"

#include "api/check.h"

#include <memory>

using namespace emm;

namespace {

// What a consumer gets, and all that it keeps alive.
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
    emm_memory_info info = {};
    info.struct_size = sizeof info;
    EMM_TRY(core::describe(*memory, &info));
    return core::describe(info, offset, array, type, shared.described);
}

} // namespace

emm_status emm_dlpack_export(emm_memory *memory, uint64_t offset, const emm_array *array,
                             const emm_dlpack_type *type, DLManagedTensorVersioned **ret_tensor) {
    EMM_REFUSE_CHILD();
    EMM_REQUIRE(memory);
    EMM_REQUIRE(array);
    EMM_REQUIRE(ret_tensor);
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
    EMM_REFUSE_CHILD();
    EMM_REQUIRE(memory);
    EMM_REQUIRE(array);
    EMM_REQUIRE(ret_tensor);
    return api::guarded([&] {
        auto shared = std::make_unique<Shared<DLManagedTensor>>();
        EMM_TRY(describe(memory, offset, *array, type, *shared));
        if (shared->described.read_only) {
            return observe::fail(EMM_E_INVALID_VALUE, 0,
                                 "DLPack: expected an array that may be written to, found a "
                                 "read-only one, which only the versioned struct can say");
        }
        return share(memory, std::move(shared), ret_tensor);
    });
}
