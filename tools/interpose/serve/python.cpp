#include "python.h"

#include <initializer_list>

namespace emm::run {
namespace {

struct MethodDefinition { // PyMethodDef
    const char *name;
    PyObject *(*function)(PyObject *, PyObject *);
    int flags;
    const char *documentation;
};

constexpr int no_arguments = 4; // METH_NOARGS

template <class Function>
bool find_one(FindFunction find, const char *name, Function &ret_function) {
    ret_function = reinterpret_cast<Function>(find(name));
    return ret_function != nullptr;
}

} // namespace

bool find_python(FindFunction find, Python &ret_python) {
#define FOUND(name) find_one(find, #name, ret_python.name)
    return FOUND(Py_IsInitialized) && FOUND(PyGILState_Check) && FOUND(PyGILState_Ensure) &&
           FOUND(PyGILState_Release) && FOUND(PyEval_SaveThread) && FOUND(PyEval_RestoreThread) &&
           FOUND(PyErr_Clear) && FOUND(Py_IncRef) && FOUND(Py_DecRef) &&
           FOUND(PyImport_GetModuleDict) && FOUND(PyImport_ImportModule) &&
           FOUND(PyMapping_GetItemString) && FOUND(PyObject_GetAttrString) &&
           FOUND(PyObject_CallObject) && FOUND(PyObject_CallFunctionObjArgs) &&
           FOUND(PyCFunction_NewEx) && FOUND(Py_BuildValue);
#undef FOUND
}

// atexit is a part of the interpreter. The definition lives as long as the process.
bool Python::call_at_end(PyObject *(*function)(PyObject *, PyObject *)) const {
    static MethodDefinition definition = {"emm_run_at_end", nullptr, no_arguments, nullptr};
    definition.function = function;
    PyObject *const made = PyCFunction_NewEx(&definition, nullptr, nullptr);
    PyObject *const module = made ? PyImport_ImportModule("atexit") : nullptr;
    PyObject *const enter = module ? PyObject_GetAttrString(module, "register") : nullptr;
    PyObject *const answer = enter ? PyObject_CallFunctionObjArgs(enter, made, nullptr) : nullptr;
    for (PyObject *object : {made, module, enter, answer}) {
        if (object) {
            Py_DecRef(object);
        }
    }
    PyErr_Clear();
    return answer != nullptr;
}

} // namespace emm::run
