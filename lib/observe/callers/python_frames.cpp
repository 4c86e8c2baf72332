#include "observe/callers/python_frames.h"

#include "observe/callers/python_layout.h"
#include "observe/process.h"

#include <algorithm>
#include <atomic>
#include <compare>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

struct _object; // as declared by Python.h
using PyObject = _object;

namespace emm::observe {
namespace {

struct PythonApi {
    int (*Py_IsInitialized)();
    int (*PyGILState_Check)();
    void *(*PyGILState_GetThisThreadState)();
    void *(*current_thread_state)();
    PyObject *(*PyEval_GetFrame)();           // borrowed
    PyObject *(*PyFrame_GetBack)(PyObject *); // NULL: the outermost
    PyObject *(*PyFrame_GetCode)(PyObject *);
    int (*PyFrame_GetLineNumber)(PyObject *);
    PyObject *(*PyObject_GetAttrString)(PyObject *, const char *);
    const char *(*PyUnicode_AsUTF8AndSize)(PyObject *, intptr_t *);
    void (*PyErr_Fetch)(PyObject **, PyObject **, PyObject **);
    void (*PyErr_Restore)(PyObject *, PyObject *, PyObject *);
    void (*PyErr_Clear)();
    void (*Py_IncRef)(PyObject *);
    void (*Py_DecRef)(PyObject *);
    int (*PyGC_Disable)(); // since 3.10; until then all frames are objects already
    int (*PyGC_Enable)();

    bool find(FindPythonFunction find_function);
    bool is_held() const {
        void *const own = PyGILState_Check() != 0 ? PyGILState_GetThisThreadState() : nullptr;
        return own && own == current_thread_state();
    }
};

template <class Function>
bool find_one(FindPythonFunction find, const char *name, Function &ret_function) {
    ret_function = reinterpret_cast<Function>(find(name));
    return ret_function != nullptr;
}

bool PythonApi::find(FindPythonFunction find_function) {
#define FOUND(name) find_one(find_function, #name, name)
    FOUND(PyGC_Disable);
    FOUND(PyGC_Enable);
    return FOUND(Py_IsInitialized) && FOUND(PyGILState_Check) &&
           FOUND(PyGILState_GetThisThreadState) && FOUND(PyEval_GetFrame) &&
           FOUND(PyFrame_GetBack) && FOUND(PyFrame_GetCode) && FOUND(PyFrame_GetLineNumber) &&
           FOUND(PyObject_GetAttrString) && FOUND(PyUnicode_AsUTF8AndSize) && FOUND(PyErr_Fetch) &&
           FOUND(PyErr_Restore) && FOUND(PyErr_Clear) && FOUND(Py_IncRef) && FOUND(Py_DecRef) &&
           (find_one(find_function, "PyThreadState_GetUnchecked", current_thread_state) ||
            find_one(find_function, "_PyThreadState_UncheckedGet", current_thread_state));
#undef FOUND
}

// The functions that a thread without the lock may call: they read constant data, and write
// nothing.
struct DetachedApi {
    const PythonLayout *layout = nullptr; // NULL: such a thread gets no frames
    const void *PyCode_Type = nullptr;
    int (*Py_IsFinalizing)() = nullptr;
    int (*PyCode_Addr2Line)(PyObject *, int) = nullptr;
    intptr_t (*PyUnicode_GetLength)(PyObject *) = nullptr;
    uint32_t (*PyUnicode_ReadChar)(PyObject *, intptr_t) = nullptr;

    bool find(FindPythonFunction find_function);
};

bool DetachedApi::find(FindPythonFunction find_function) {
#define FOUND(name) find_one(find_function, #name, name)
    const char *(*Py_GetVersion)() = nullptr;
    PyCode_Type = find_function("PyCode_Type");
    const bool has_all =
        FOUND(Py_GetVersion) && PyCode_Type && FOUND(PyCode_Addr2Line) &&
        FOUND(PyUnicode_GetLength) && FOUND(PyUnicode_ReadChar) &&
        (FOUND(Py_IsFinalizing) || find_one(find_function, "_Py_IsFinalizing", Py_IsFinalizing));
#undef FOUND
    layout = has_all ? python_layout(Py_GetVersion()) : nullptr;
    return layout != nullptr;
}

constinit PythonApi api = {};
constinit DetachedApi detached = {};
constinit std::atomic<bool> has_python{false};

// Preserves, for a scope, the interpreter's pending exception and the state of its garbage
// collector.
class Undisturbed {
public:
    Undisturbed() : collects_(api.PyGC_Disable && api.PyGC_Enable && api.PyGC_Disable() != 0) {
        api.PyErr_Fetch(&type_, &value_, &traceback_);
    }
    ~Undisturbed() {
        api.PyErr_Restore(type_, value_, traceback_);
        if (collects_) {
            api.PyGC_Enable();
        }
    }
    Undisturbed(const Undisturbed &) = delete;
    Undisturbed &operator=(const Undisturbed &) = delete;

private:
    const bool collects_;
    PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// "?" if there is no such text.
std::string text_of(PyObject *code, const char *attribute) {
    PyObject *const text = api.PyObject_GetAttrString(code, attribute);
    intptr_t size = 0;
    const char *const bytes = text ? api.PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
    const std::string copy = bytes ? std::string(bytes, static_cast<size_t>(size)) : "?";
    if (text) {
        api.Py_DecRef(text);
    }
    api.PyErr_Clear();
    return copy;
}

void append_character(std::string &text, uint32_t character) {
    const auto tail = [&](unsigned shift) {
        return static_cast<char>(0x80 | (character >> shift & 0x3f));
    };
    if (character >= 0xdc80 && character <= 0xdcff) {
        text += static_cast<char>(character); // a byte of a file's name that is not UTF-8
    } else if (character < 0x80) {
        text += static_cast<char>(character);
    } else if (character < 0x800) {
        text += {static_cast<char>(0xc0 | character >> 6), tail(0)};
    } else if (character < 0x10000) {
        text += {static_cast<char>(0xe0 | character >> 12), tail(6), tail(0)};
    } else {
        text += {static_cast<char>(0xf0 | character >> 18), tail(12), tail(6), tail(0)};
    }
}

// The text of a code object, read without the lock.
std::string detached_text(const char *text) {
    constexpr intptr_t longest = 4096;
    auto *const object = reinterpret_cast<PyObject *>(const_cast<char *>(text));
    const intptr_t length = std::min(detached.PyUnicode_GetLength(object), longest);
    std::string copy;
    for (intptr_t i = 0; i < length; i++) {
        append_character(copy, detached.PyUnicode_ReadChar(object, i));
    }
    return copy;
}

// Code that a thread without the lock has met. We hold no reference to it, so the contents tell
// other code that takes its address later.
struct DetachedCode {
    const char *code, *file, *name;
    int line;

    auto operator<=>(const DetachedCode &) const = default;
};

// Numbers code by its object. Referenced objects are kept, so no other code takes their address.
class Codes {
public:
    static constexpr size_t most = 65'536; // further code gets number 0

    uint32_t number_of(const DetachedCode &code) {
        const std::lock_guard lock(mutex_);
        const auto kept =
            numbers_.find(reinterpret_cast<PyObject *>(const_cast<char *>(code.code)));
        if (kept != numbers_.end()) {
            return kept->second;
        }
        const auto found = detached_numbers_.find(code);
        if (found != detached_numbers_.end() || codes_.size() == most) {
            return found != detached_numbers_.end() ? found->second : 0;
        }
        codes_.push_back(made_of(detached_text(code.file), detached_text(code.name)));
        return detached_numbers_[code] = uint32_t(codes_.size() - 1);
    }
    uint32_t number_of(PyObject *code) {
        {
            const std::lock_guard lock(mutex_);
            const auto found = numbers_.find(code);
            if (found != numbers_.end() || codes_.size() == most) {
                return found != numbers_.end() ? found->second : 0;
            }
        }
        // The mutex is not held, because CPython may let go of its own lock meanwhile.
        std::string function = text_of(code, "co_qualname"); // since 3.11
        PythonCode made = made_of(text_of(code, "co_filename"),
                                  function == "?" ? text_of(code, "co_name") : std::move(function));
        const std::lock_guard lock(mutex_);
        const auto [place, is_new] = numbers_.try_emplace(code, uint32_t(codes_.size()));
        if (is_new) {
            codes_.push_back(std::move(made));
            api.Py_IncRef(code);
        }
        return place->second;
    }
    const PythonCode &code(uint32_t number) {
        const std::lock_guard lock(mutex_);
        return codes_[number < codes_.size() ? number : 0];
    }

private:
    static PythonCode made_of(std::string file, std::string function) {
        const bool is_own = !is_installed_python(file);
        return {std::move(file), std::move(function), is_own};
    }

    std::mutex mutex_;
    std::unordered_map<PyObject *, uint32_t> numbers_;
    std::map<DetachedCode, uint32_t> detached_numbers_;
    std::deque<PythonCode> codes_{{"?", "?"}};
};

constexpr auto &codes = immortal<Codes>;

uint64_t word_of(PyObject *frame) noexcept {
    PyObject *const code = api.PyFrame_GetCode(frame);
    uint32_t number = 0;
    try {
        number = code ? codes().number_of(code) : 0;
    } catch (const std::bad_alloc &) {
        number = 0;
    }
    if (code) {
        api.Py_DecRef(code);
    }
    const int line = api.PyFrame_GetLineNumber(frame);
    return python_word(number, line < 0 ? 0 : static_cast<uint32_t>(line));
}

int detached_line(const void *frame, const char *code) noexcept {
    const PythonLayout &layout = *detached.layout;
    auto *const object = reinterpret_cast<PyObject *>(const_cast<char *>(code));
    if (layout.instruction == 0) {
        return api.PyFrame_GetLineNumber(static_cast<PyObject *>(const_cast<void *>(frame)));
    }
    const char *const at = pointer_at(frame, layout.instruction);
    return detached.PyCode_Addr2Line(object, static_cast<int>(at - (code + layout.instructions)));
}

uint64_t detached_word(const void *frame, const char *code) noexcept {
    const PythonLayout &layout = *detached.layout;
    uint32_t number = 0;
    try {
        number = codes().number_of(DetachedCode{code, pointer_at(code, layout.file),
                                                pointer_at(code, layout.name),
                                                value_at<int>(code, layout.line)});
    } catch (const std::bad_alloc &) {
        number = 0;
    }
    const int line = detached_line(frame, code);
    return python_word(number, line < 0 ? 0 : static_cast<uint32_t>(line));
}

// Visits the words of a thread that does not hold the lock, until `visit` returns false.
template <class Visit> void visit_detached(Visit &visit) noexcept {
    constexpr size_t type_of_object = 8;
    const void *const state = detached.layout && detached.Py_IsFinalizing() == 0
                                  ? api.PyGILState_GetThisThreadState()
                                  : nullptr;
    const void *frame = state ? innermost_frame(*detached.layout, state) : nullptr;
    for (; frame; frame = pointer_at(frame, detached.layout->previous)) {
        const char *const code = pointer_at(frame, detached.layout->code);
        if (is_call(*detached.layout, frame) && code &&
            pointer_at(code, type_of_object) == detached.PyCode_Type &&
            !visit(detached_word(frame, code))) {
            return;
        }
    }
}

template <class Visit> void visit_frames(Visit visit) noexcept {
    if (!has_python.load(std::memory_order_acquire) || api.Py_IsInitialized() == 0) {
        return;
    }
    if (!api.is_held()) {
        return visit_detached(visit);
    }
    const Undisturbed undisturbed;
    PyObject *frame = api.PyEval_GetFrame();
    if (frame) {
        api.Py_IncRef(frame);
    }
    while (frame && visit(word_of(frame))) {
        PyObject *const caller = api.PyFrame_GetBack(frame);
        api.Py_DecRef(frame);
        frame = caller;
    }
    if (frame) {
        api.Py_DecRef(frame);
    }
}

} // namespace

bool find_python_frames(FindPythonFunction find) noexcept {
    PythonApi found = {};
    if (!found.find(find)) {
        return false;
    }
    api = found;
    detached = {};
    detached.find(find);
    has_python.store(true, std::memory_order_release);
    return true;
}

size_t python_frames(uint64_t *ret_words, size_t most) noexcept {
    size_t count = 0;
    visit_frames([&](uint64_t word) {
        if (count < most) {
            ret_words[count++] = word;
        }
        return count < most;
    });
    return count;
}

size_t python_line(uint64_t &ret_word) noexcept {
    size_t looked_at = 0;
    visit_frames([&](uint64_t word) {
        const bool is_own = python_code(static_cast<uint32_t>(word >> 32)).is_own;
        if (is_own || looked_at == 0) {
            ret_word = word;
        }
        return ++looked_at < deepest_python && !is_own;
    });
    return looked_at == 0 ? 0 : 1;
}

const PythonCode &python_code(uint32_t number) noexcept {
    return codes().code(number);
}

} // namespace emm::observe
