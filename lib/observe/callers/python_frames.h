#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// The Python calls that a thread is inside of, found by CPython's own C API if the process has it.
// Nothing is linked.
//
// A thread asks while it holds the interpreter's lock: PyGILState_Check says so, and its thread
// state is the current one. Both are checked, because with subinterpreters PyGILState_Check always
// says yes. Most libraries call CUDA without the lock. Then frames may not be referenced, so they
// are read directly, where python_layout.h says for known versions of CPython; other versions yield
// no frames.
//
// No Python code runs meanwhile. Attributes are looked up only on code objects, which are CPython's
// own. Up to 3.11, where making an object may collect garbage, the collector is held off. CPython
// 3.11 and later make the requested frame objects; other objects are made only for code that is
// seen for the first time. A pending exception stays, and no new one is left.

namespace emm::observe {

constexpr size_t deepest_python = 32; // frames

struct PythonCode {
    std::string file, function;
    bool is_own = false; // the program's own code: not is_installed_python
};

// Finds a function of the process by name; NULL if no function has the name.
using FindPythonFunction = void *(*)(const char *name);

// Looks for the interpreter, before any thread asks. False: no interpreter, or one before 3.9.
bool find_python_frames(FindPythonFunction find) noexcept;

// A line of Python as a number: the code's number, and the line.
constexpr uint64_t python_word(uint32_t code, uint32_t line) {
    return uint64_t(code) << 32 | line;
}

// Fills words as python_word makes them, the innermost first. Returns their number; 0 if the thread
// must not be asked.
size_t python_frames(uint64_t *ret_words, size_t most) noexcept;

// The same for one frame: the innermost of the program's own code, else the innermost.
size_t python_line(uint64_t &ret_word) noexcept;

// The code of a word. Valid permanently.
const PythonCode &python_code(uint32_t number) noexcept;

// Whether a Python file belongs to an installed package, the standard library, the interpreter
// itself (<frozen importlib>) or emm, or was written by torch.compile. Calls in such files are made
// on behalf of a program's own lines.
inline bool is_installed_python(std::string_view file) {
    for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3",
                                        "/python/emm/", "/torchinductor_"}) {
        if (file.find(part) != std::string_view::npos) {
            return true;
        }
    }
    return file.empty() || file.front() == '<';
}

} // namespace emm::observe
