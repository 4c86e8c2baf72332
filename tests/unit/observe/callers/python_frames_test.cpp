#include "observe/callers/python_frames.h"

#include "catch.h"
#include "observe/callers/python_layout.h"
#include "observe/callers/stacks.h"

#include <cstring>
#include <iterator>
#include <utility>

using namespace emm::observe;

struct _object;
using PyObject = _object;

// An interpreter of the test's own: frames and code are numbers, and reads that would break a real
// interpreter are counted.
namespace {

const char *const memory_error = "MemoryError";

// A thread state, frames and code as CPython 3.12 has them, for a thread without the lock.
struct Memory {
    static constexpr size_t bytes = 256, count = 8;
    alignas(8) char objects[count][bytes] = {};

    char *operator[](size_t number) { return objects[number]; }
    template <class Value> void put(size_t number, size_t offset, Value value) {
        std::memcpy(objects[number] + offset, &value, sizeof value);
    }
} memory;

char code_type, none_type;

struct Interpreter {
    int first = 1, frames = 3;     // the innermost, and the outermost
    const char *file = "train.py"; // of code that is seen for the first time
    bool finalizing = false;
    const char *version = "2.7.18 (old)";
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
    return interpreter.detached ? memory[0] : &thread_state;
}
void *current_state() {
    return interpreter.detached ? &other_state : &thread_state;
}
PyObject *get_frame() {
    interpreter.collected_while += interpreter.collecting;
    return interpreter.frames == 0 ? nullptr : as_object(size_t(interpreter.first));
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
    const char *const found = as_number(text) == 1 ? interpreter.file : "Model.step";
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

const char *get_version() {
    return interpreter.version;
}
int is_finalizing() {
    return interpreter.finalizing;
}
int line_at(PyObject *, int instruction) {
    return 100 + instruction;
}
const uint32_t detached_text[] = {'a', 0xe4, 0x4e2d, 0x1f600, 0xdcff};
intptr_t get_length(PyObject *) {
    return std::size(detached_text);
}
uint32_t read_character(PyObject *, intptr_t at) {
    return detached_text[at];
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
        {"Py_GetVersion", as_address(get_version)},
        {"_Py_IsFinalizing", as_address(is_finalizing)},
        {"PyCode_Type", &code_type},
        {"PyCode_Addr2Line", as_address(line_at)},
        {"PyUnicode_GetLength", as_address(get_length)},
        {"PyUnicode_ReadChar", as_address(read_character)},
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
    CHECK(interpreter.references == 3); // the three known ones
    CHECK(interpreter.collected_while == 0);
    CHECK(interpreter.collecting);

    uint64_t again[8] = {};
    CHECK(python_frames(again, 2) == 2);
    CHECK((again[0] == words[0] && again[1] == words[1] && again[2] == 0));
    CHECK(interpreter.references == 3);
}

TEST_CASE("one line is the innermost of the program's own, or the innermost of all") {
    interpreter = {};
    REQUIRE(find_python_frames(find));
    interpreter.first = 11;
    interpreter.frames = 12;
    interpreter.file = "/venv/lib/python3.12/site-packages/numba/api.py";
    uint64_t word = 0;
    CHECK(python_line(word) == 1);
    CHECK(uint32_t(word) == 110);
    interpreter.frames = 14;
    interpreter.file = "train.py";
    CHECK(python_line(word) == 1);
    CHECK(uint32_t(word) == 130);
    CHECK(python_code(uint32_t(word >> 32)).is_own);
    interpreter.frames = 0;
    CHECK(python_line(word) == 0);
    CHECK(is_installed_python("/tmp/torchinductor_me/z3/cz3v.py"));
    CHECK_FALSE(is_installed_python("/home/me/train.py"));
}

TEST_CASE("a collector that is off stays off") {
    interpreter = {};
    REQUIRE(find_python_frames(find));
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
    interpreter.detached = true; // PyGILState_Check does not see this with subinterpreters
    CHECK(python_frames(words, 8) == 0);
    interpreter.version = "3.15.0 (new)";
    REQUIRE(find_python_frames(find));
    CHECK(python_frames(words, 8) == 0);
    interpreter = {};
    interpreter.frames = 0;
    CHECK(python_frames(words, 8) == 0);
    CHECK(python_code(4'000'000).function == "?");
}

namespace {

// Code at `number`, whose instructions begin at `instructions`.
void make_code(size_t number, const PythonLayout &layout, const char *type) {
    memory.put(number, 8, type);
    memory.put(number, layout.file, memory[7]);
    memory.put(number, layout.name, memory[7] + number);
    memory.put(number, layout.line, 100);
}

void make_frame(size_t number, const PythonLayout &layout, size_t code, size_t previous,
                ptrdiff_t instruction) {
    memory.put(number, layout.code, memory[code]);
    memory.put(number, layout.previous, previous == 0 ? nullptr : memory[previous]);
    memory.put(number, layout.instruction, memory[code] + layout.instructions + instruction);
}

} // namespace

TEST_CASE("a thread without the lock is told the frames of its own that are calls of Python") {
    interpreter = {};
    interpreter.version = "3.12.1 (main, May  9 2026)";
    interpreter.detached = true;
    REQUIRE(find_python_frames(find));
    const PythonLayout &layout = *python_layout(interpreter.version);
    memory.put(0, layout.state_frame, memory[1] + 200); // the object that has the frame
    memory.put(1, 200 + layout.behind_frame, memory[1]);
    make_frame(1, layout, 4, 2, 6);
    make_frame(2, layout, 5, 3, 0);
    make_frame(3, layout, 4, 0, 8);
    make_code(4, layout, &code_type);
    make_code(5, layout, &none_type);
    uint64_t words[8] = {};
    REQUIRE(python_frames(words, 8) == 2);
    CHECK(uint32_t(words[0]) == 106);
    CHECK(uint32_t(words[1]) == 108);
    CHECK(words[0] >> 32 == words[1] >> 32);
    CHECK(python_code(uint32_t(words[0] >> 32)).function ==
          "a\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80\xff");
    CHECK(interpreter.references == 0);

    SECTION("a frame that C code has is none") {
        memory.put(3, layout.owner, char(3));
        CHECK(python_frames(words, 8) == 1);
        memory.put(3, layout.owner, char(0));
    }
    SECTION("other code at the same address is other code") {
        const uint64_t before = words[0];
        memory.put(4, layout.line, 200);
        REQUIRE(python_frames(words, 8) == 2);
        CHECK(words[0] >> 32 != before >> 32);
    }
    SECTION("an interpreter that comes to its end tells nothing") {
        interpreter.finalizing = true;
        CHECK(python_frames(words, 8) == 0);
    }
}

TEST_CASE("where CPython has its frames is known of its releases from 3.9 to 3.13") {
    CHECK(python_layout("3.9.18 (main)"));
    CHECK(python_layout("3.11.7 (main)"));
    CHECK(python_layout("3.13.0+ (heads/3.13)"));
    for (const char *const version :
         {"3.8.18 (main)", "3.14.0 (main)", "2.7.18 (main)", "3.13.0a4 (main)", "3.13.0rc1 (main)",
          "3.13.0 experimental free-threading build (main)", "3.12", "", "x"}) {
        CHECK_FALSE(python_layout(version));
    }
    CHECK_FALSE(python_layout(nullptr));
}
