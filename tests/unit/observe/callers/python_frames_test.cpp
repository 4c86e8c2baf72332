#include "observe/callers/python_frames.h"

#include "catch.h"
#include "observe/callers/stacks.h"

#include <cstring>
#include <utility>

using namespace emm::observe;

struct _object;
using PyObject = _object;

// An interpreter of the test's own: frames and code are numbers, and what would break a real one is
// counted.
namespace {

const char *const memory_error = "MemoryError";

struct Interpreter {
    int frames = 3;
    bool initialized = true, checks = true, detached = false, collecting = true;
    int references = 0, collected_while = 0;
    const void *pending = nullptr; // exception
} interpreter;

PyObject *as_object(size_t number) {
    return reinterpret_cast<PyObject *>(number);
}
size_t as_number(const PyObject *object) {
    return reinterpret_cast<size_t>(object);
}
char thread_state, other_state;

int is_initialized() {
    return interpreter.initialized;
}
int check() {
    return interpreter.checks;
}
void *this_state() {
    return &thread_state;
}
void *current_state() {
    return interpreter.detached ? &other_state : &thread_state;
}
PyObject *get_frame() {
    interpreter.collected_while += interpreter.collecting;
    return interpreter.frames == 0 ? nullptr : as_object(1);
}
PyObject *get_back(PyObject *frame) {
    interpreter.collected_while += interpreter.collecting;
    if (as_number(frame) >= size_t(interpreter.frames)) {
        return nullptr;
    }
    interpreter.references++;
    return as_object(as_number(frame) + 1);
}
PyObject *get_code(PyObject *frame) {
    interpreter.references++;
    return as_object(1000 + as_number(frame));
}
int get_line(PyObject *frame) {
    return as_number(frame) == 2 ? -1 : int(as_number(frame)) * 10;
}
PyObject *get_attribute(PyObject *code, const char *name) {
    if (std::strcmp(name, "co_qualname") == 0 && as_number(code) == 1002) {
        interpreter.pending = "AttributeError"; // before 3.11
        return nullptr;
    }
    interpreter.references++;
    return as_object(std::strcmp(name, "co_filename") == 0 ? 1 : 2);
}
const char *as_text(PyObject *text, intptr_t *ret_size) {
    const char *const found = as_number(text) == 1 ? "train.py" : "Model.step";
    *ret_size = intptr_t(std::strlen(found));
    return found;
}
void fetch(PyObject **type, PyObject **value, PyObject **traceback) {
    *type = static_cast<PyObject *>(const_cast<void *>(interpreter.pending));
    *value = *traceback = nullptr;
    interpreter.pending = nullptr;
}
void restore(PyObject *type, PyObject *, PyObject *) {
    interpreter.pending = type;
}
void clear() {
    interpreter.pending = nullptr;
}
void more(PyObject *) {
    interpreter.references++;
}
void fewer(PyObject *) {
    interpreter.references--;
}
int disable() {
    return std::exchange(interpreter.collecting, false);
}
int enable() {
    return std::exchange(interpreter.collecting, true);
}

template <class Function> void *as_address(Function *function) {
    return reinterpret_cast<void *>(function);
}

const char *missing = "";
void *find(const char *name) {
    static const std::pair<const char *, void *> all[] = {
        {"Py_IsInitialized", as_address(is_initialized)},
        {"PyGILState_Check", as_address(check)},
        {"PyGILState_GetThisThreadState", as_address(this_state)},
        {"_PyThreadState_UncheckedGet", as_address(current_state)},
        {"PyEval_GetFrame", as_address(get_frame)},
        {"PyFrame_GetBack", as_address(get_back)},
        {"PyFrame_GetCode", as_address(get_code)},
        {"PyFrame_GetLineNumber", as_address(get_line)},
        {"PyObject_GetAttrString", as_address(get_attribute)},
        {"PyUnicode_AsUTF8AndSize", as_address(as_text)},
        {"PyErr_Fetch", as_address(fetch)},
        {"PyErr_Restore", as_address(restore)},
        {"PyErr_Clear", as_address(clear)},
        {"Py_IncRef", as_address(more)},
        {"Py_DecRef", as_address(fewer)},
        {"PyGC_Disable", as_address(disable)},
        {"PyGC_Enable", as_address(enable)}};
    for (const auto &[known, address] : all) {
        if (std::strcmp(known, name) == 0 && std::strcmp(missing, name) != 0) {
            return address;
        }
    }
    return nullptr;
}

} // namespace

TEST_CASE("an interpreter that lacks a function is none") {
    missing = "PyFrame_GetBack";
    CHECK_FALSE(find_python_frames(find));
    missing = "";
}

TEST_CASE("Python's frames are told while the thread holds the lock, and nothing is left behind") {
    interpreter = {};
    interpreter.pending = memory_error;
    REQUIRE(find_python_frames(find));
    uint64_t words[8] = {};
    REQUIRE(python_frames(words, 8) == 3);
    const PythonCode &code = python_code(uint32_t(words[0] >> 32));
    CHECK((code.file == "train.py" && code.function == "Model.step"));
    CHECK(python_code(uint32_t(words[1] >> 32)).function == "Model.step");
    CHECK(uint32_t(words[0]) == 10);
    CHECK(uint32_t(words[1]) == 0); // a frame without a line
    CHECK(interpreter.pending == memory_error);
    CHECK(interpreter.references == 3); // the three that are known now
    CHECK(interpreter.collected_while == 0);
    CHECK(interpreter.collecting);

    uint64_t again[8] = {};
    CHECK(python_frames(again, 2) == 2);
    CHECK((again[0] == words[0] && again[1] == words[1] && again[2] == 0));
    CHECK(interpreter.references == 3);
}

TEST_CASE("a collector that is off stays off") {
    interpreter = {};
    interpreter.collecting = false;
    uint64_t words[8] = {};
    CHECK(python_frames(words, 8) == 3);
    CHECK_FALSE(interpreter.collecting);
}

TEST_CASE("a thread that may not ask is told nothing") {
    uint64_t words[8] = {};
    interpreter = {};
    interpreter.initialized = false;
    CHECK(python_frames(words, 8) == 0);
    interpreter = {};
    interpreter.checks = false;
    CHECK(python_frames(words, 8) == 0);
    interpreter = {};
    interpreter.detached = true; // what PyGILState_Check does not see with subinterpreters
    CHECK(python_frames(words, 8) == 0);
    interpreter = {};
    interpreter.frames = 0;
    CHECK(python_frames(words, 8) == 0);
    CHECK(python_code(4'000'000).function == "?");
}
