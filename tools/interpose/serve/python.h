// The Python interpreter of the process, by its C API. Nothing is linked: a process without Python
// has none.
#pragma once

struct _object; // as Python.h has it
using PyObject = _object;

namespace emm::run {

// The functions that are called: all of them are in each CPython since 3.4.
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

    // Whether there is an interpreter that the calling thread does not hold the lock of. In a
    // build without that lock a thread holds it while it is attached. With subinterpreters the
    // answer is always no.
    bool is_free() const { return Py_IsInitialized() != 0 && PyGILState_Check() == 0; }

    // Has the interpreter call `function` when it begins to end, before its threads are ended. The
    // calling thread holds the lock. False: it will not.
    bool call_at_end(PyObject *(*function)(PyObject *, PyObject *)) const;
};

// Finds a function by name; NULL: there is none.
using FindFunction = void *(*)(const char *name);

// False: one is missing.
bool find_python(FindFunction find, Python &ret_python);

} // namespace emm::run
