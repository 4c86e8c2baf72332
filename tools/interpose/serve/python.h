// The Python interpreter of the process, by its C API. No library is linked, because a process may
// have no Python.
#pragma once

struct _object; // as Python.h has it
using PyObject = _object;

namespace emm::run {

// The functions that emm calls; each CPython since 3.4 has all of them.
struct Python {
    int (*Py_IsInitialized)();
    int (*PyGILState_Check)();
    int (*PyGILState_Ensure)();
    void (*PyGILState_Release)(int);
    void *(*PyEval_SaveThread)();
    void (*PyEval_RestoreThread)(void *);
    void (*PyErr_Clear)();
    void (*Py_IncRef)(PyObject *);
    void (*Py_DecRef)(PyObject *);
    PyObject *(*PyImport_GetModuleDict)(); // borrowed
    PyObject *(*PyImport_ImportModule)(const char *);
    PyObject *(*PyMapping_GetItemString)(PyObject *, const char *);
    PyObject *(*PyObject_GetAttrString)(PyObject *, const char *);
    PyObject *(*PyObject_CallObject)(PyObject *, PyObject *);
    PyObject *(*PyObject_CallFunctionObjArgs)(PyObject *, ...);
    PyObject *(*PyCFunction_NewEx)(void *, PyObject *, PyObject *);
    PyObject *(*Py_BuildValue)(const char *, ...);

    // Whether there is an interpreter whose lock the calling thread does not hold. In a build
    // without that lock, an attached thread counts as its holder. With subinterpreters the answer
    // is always no.
    bool is_free() const { return Py_IsInitialized() != 0 && PyGILState_Check() == 0; }

    // Makes the interpreter call `function` when it begins to end, before its threads are ended.
    // The calling thread holds the lock. False: the interpreter will not call.
    bool call_at_end(PyObject *(*function)(PyObject *, PyObject *)) const;
};

// Finds a function by name; NULL: there is no such function.
using FindFunction = void *(*)(const char *name);

// False: a function is missing.
bool find_python(FindFunction find, Python &ret_python);

} // namespace emm::run
