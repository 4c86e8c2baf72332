#include "caches.h"

#include <cstddef>

namespace emm::run {
namespace {

// Calls functions of modules. Each step gives a new reference; NULL after an error, or if it got
// NULL. Calls only existing attributes: asking a module for an attribute that it lacks may import
// something. The references are dropped by hand, because the interpreter may end the thread in a
// call.
class Calls {
public:
    explicit Calls(const Python &python) : python_(python) {}

    PyObject *call_function(const char *module, const char *name) {
        PyObject *const modules = python_.PyImport_GetModuleDict();
        python_.Py_IncRef(modules);
        return call(item(attribute(item(keep(modules), module), "__dict__"), name));
    }
    PyObject *call_method(PyObject *object, const char *name) {
        return call(attribute(object, name));
    }
    void drop_all() {
        for (; count_ > 0; count_--) {
            python_.Py_DecRef(kept_[count_ - 1]);
        }
        python_.PyErr_Clear();
    }

private:
    PyObject *keep(PyObject *object) {
        if (object) {
            kept_[count_++] = object;
        }
        return object;
    }
    PyObject *item(PyObject *object, const char *key) {
        return object ? keep(python_.PyMapping_GetItemString(object, key)) : nullptr;
    }
    PyObject *attribute(PyObject *object, const char *name) {
        return object ? keep(python_.PyObject_GetAttrString(object, name)) : nullptr;
    }
    PyObject *call(PyObject *function) {
        return function ? keep(python_.PyObject_CallObject(function, nullptr)) : nullptr;
    }

    const Python &python_;
    PyObject *kept_[8]; // a function takes five, a method two more
    size_t count_ = 0;
};

} // namespace

Caches cache_named(std::string_view name) {
    return name == "torch" ? torch_cache : name == "cupy" ? cupy_cache : no_caches;
}

// A cache that fails gives nothing back, and the allocation fails as without the cache.
void release_caches(const Python &python, Caches caches, Memory memory) {
    Calls calls(python);
    if ((caches & torch_cache) != 0 && memory == Memory::device) {
        calls.call_function("torch.cuda", "empty_cache");
        calls.drop_all();
    }
    if ((caches & cupy_cache) != 0) {
        calls.call_method(calls.call_function("cupy", memory == Memory::device
                                                          ? "get_default_memory_pool"
                                                          : "get_default_pinned_memory_pool"),
                          "free_all_blocks");
        calls.drop_all();
    }
}

} // namespace emm::run
