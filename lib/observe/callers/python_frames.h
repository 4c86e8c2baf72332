#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// The calls of Python that a thread is inside of, by CPython's own C API, as far as it is in the
// process. Nothing is linked.
//
// A thread asks while it holds the interpreter's lock: PyGILState_Check says so, and its thread
// state is the current one, because with subinterpreters the former always says yes. Without the
// lock, as in most libraries' calls of CUDA, frames may not be referred to; they are read where the
// versions of CPython that are known have them (python_layout.h), and in others there are none.
//
// No code of Python's runs meanwhile: no attribute is looked up but of code objects, which are
// CPython's own, and up to 3.11, where making an object may collect garbage, the collector is held
// off. CPython 3.11 and later make the frame objects that are asked for; no other object is made
// but for code that is seen for the first time. An exception that is pending stays, and none is
// left.

namespace emm::observe {

constexpr size_t deepest_python = 32; // frames

struct PythonCode {
    std::string file, function;
    bool is_own = false; // of the program: not is_installed_python
};

// Finds a function of the process by name; NULL: there is none.
using FindPythonFunction = void *(*)(const char *name);

// Looks for the interpreter. To be called before threads ask. False: there is none, or one older
// than 3.9.
bool find_python_frames(FindPythonFunction find) noexcept;

// A line of Python in a number: which code, and the line.
constexpr uint64_t python_word(uint32_t code, uint32_t line) {
    return uint64_t(code) << 32 | line;
}

// Words as python_word makes them, the innermost first; how many there are, 0 if the thread must
// not be asked.
size_t python_frames(uint64_t *ret_words, size_t most) noexcept;

// The same of one frame: the innermost of the program's own code, else the innermost.
size_t python_line(uint64_t &ret_word) noexcept;

// Of a word's code. Valid for good.
const PythonCode &python_code(uint32_t number) noexcept;

// Whether a file of Python is an installed package's, the standard library's, the interpreter's own
// (<frozen importlib>), emm's or what torch.compile has written: calls in it are made on behalf of
// a program's own lines.
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
