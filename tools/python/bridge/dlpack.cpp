#include "interpreter.h"

#include <cstring>

using emm::bridge::python;

namespace {

// DLPack's two structs, as far as their deleters.
struct Unversioned {
    char tensor[48];
    void *manager;
    void (*deleter)(Unversioned *);
};
struct Versioned {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(Versioned *);
};

// Only capsules of emm end here, so the deleter needs no lock of the interpreter.
template <class Tensor> void delete_tensor(void *capsule, const char *name) {
    auto *const tensor = static_cast<Tensor *>(python.get_pointer(capsule, name));
    emm::bridge::without_lock([tensor] {
        tensor->deleter(tensor);
        return 0;
    });
}

} // namespace

// A capsule may end while an exception is on its way; the exception stays as it was. A consumer
// that has taken the tensor has renamed the capsule.
void emm_dlpack_end_capsule(void *capsule) {
    void *type = nullptr, *value = nullptr, *traceback = nullptr;
    python.fetch_error(&type, &value, &traceback);
    const char *const name = python.get_name(capsule);
    if (name && std::strcmp(name, "dltensor") == 0) {
        delete_tensor<Unversioned>(capsule, name);
    } else if (name && std::strcmp(name, "dltensor_versioned") == 0) {
        delete_tensor<Versioned>(capsule, name);
    }
    python.restore_error(type, value, traceback);
}
