#pragma once

#include <cstddef>

// The Python calls of a thread that does not hold the interpreter's lock. As long as such a thread
// is in C code, no other thread runs, ends or frees its frames, so it may read them. But CPython's
// API requires the lock, so the frames are read directly.
//
//     thread state --> frame (innermost) --> frame --> ... --> NULL
//                        |                     |
//                       code                  code        and where in the code
namespace emm::observe {

// Offsets in bytes, of one minor version of CPython; the headers of a minor version never change.
struct PythonLayout {
    size_t state_frame;      // of a thread state: the innermost frame,
    bool is_behind;          // or a struct that has it
    size_t behind_frame;     // at this offset
    size_t previous, code;   // of a frame
    size_t owner;            // of a frame, a byte; 0: every frame is a call of Python
    size_t instruction;      // of a frame; 0: frames are objects that know their line
    size_t instructions;     // of code: where its instructions begin
    size_t file, name, line; // of code
};

// NULL: the version is unknown. `version` is as Py_GetVersion returns it. Known are only releases
// of 64-bit builds with the lock.
const PythonLayout *python_layout(const char *version) noexcept;

template <class Value> Value value_at(const void *object, size_t offset) noexcept {
    return *reinterpret_cast<const Value *>(static_cast<const char *>(object) + offset);
}
inline const char *pointer_at(const void *object, size_t offset) noexcept {
    return value_at<const char *>(object, offset);
}

// NULL: there is none.
const void *innermost_frame(const PythonLayout &layout, const void *thread_state) noexcept;

// False: the frame only separates Python calls by C code.
bool is_call(const PythonLayout &layout, const void *frame) noexcept;

} // namespace emm::observe
