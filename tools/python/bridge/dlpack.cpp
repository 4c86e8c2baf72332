#include "bridge.h"

#include <cstring>

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

PythonCapsules python;

template <class Tensor> void delete_tensor(void *capsule, const char *name) {
    auto *const tensor = static_cast<Tensor *>(python.get_pointer(capsule, name));
    tensor->deleter(tensor);
}

// A capsule may end while an exception is on its way; the exception stays as it was. A consumer
// that has taken the tensor has renamed the capsule.
void end_capsule(void *capsule) {
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

} // namespace

CapsuleDestructor emm_dlpack_capsule_end(const PythonCapsules *functions) {
    python = *functions;
    return &end_capsule;
}
