#pragma once

#include <cstddef>

// The calls of Python that a thread is inside of while it does not hold the interpreter's lock. As
// long as such a thread is in C code no other one runs, ends or frees its frames, so it may read
// them; but CPython's API wants the lock for that. So they are read where CPython has them.
//
//     thread state --> frame (innermost) --> frame --> ... --> NULL
//                        |                     |
//                       code                  code        and where in the code
namespace emm::observe {

// Offsets in bytes, of one minor version of CPython; the headers of a minor version never change.
struct PythonLayout {
    size_t state_frame;      // of a thread state: the innermost frame,
    bool is_behind;          // or what has it
    size_t behind_frame;     // at this offset
    size_t previous, code;   // of a frame
    size_t owner;            // of a frame, a byte; 0: every frame is a call of Python
    size_t instruction;      // of a frame; 0: frames are objects, which tell their line
    size_t instructions;     // of code: where they begin
    size_t file, name, line; // of code
};

// NULL: not one that is known. `version` is as Py_GetVersion has it. Only releases of 64-bit
// builds that have the lock.
const PythonLayout *python_layout(const char *version) noexcept;

template <class Value> Value value_at(const void *object, size_t offset) noexcept {
    return *reinterpret_cast<const Value *>(static_cast<const char *>(object) + offset);
}
inline const char *pointer_at(const void *object, size_t offset) noexcept {
    return value_at<const char *>(object, offset);
}

// NULL: there is none.
const void *innermost_frame(const PythonLayout &layout, const void *thread_state) noexcept;

// False: one that only separates calls of Python by C code.
bool is_call(const PythonLayout &layout, const void *frame) noexcept;

} // namespace emm::observe
