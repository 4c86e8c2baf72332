#include "observe/callers/python_frames.h"

#include "observe/callers/stacks.h"
#include "observe/process.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>

struct _object; // as Python.h has it
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

constinit PythonApi api = {};
constinit std::atomic<bool> has_python{false};

// The interpreter as it was, for a scope: its pending exception, and whether it collects garbage.
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

// Code by its object, which is kept from then on: no other code takes its address.
class Codes {
public:
    static constexpr size_t most = 65'536; // what is new then is number 0

    uint32_t number_of(PyObject *code) {
        {
            const std::lock_guard lock(mutex_);
            const auto found = numbers_.find(code);
            if (found != numbers_.end() || codes_.size() == most) {
                return found != numbers_.end() ? found->second : 0;
            }
        }
        // Without the lock: CPython may let go of its own meanwhile.
        std::string function = text_of(code, "co_qualname"); // since 3.11
        PythonCode made = {text_of(code, "co_filename"),
                           function == "?" ? text_of(code, "co_name") : std::move(function)};
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
    std::mutex mutex_;
    std::unordered_map<PyObject *, uint32_t> numbers_;
    std::deque<PythonCode> codes_{{"?", "?"}};
};

Codes &codes() {
    static Immortal<Codes> the_codes;
    return the_codes.value;
}

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

} // namespace

bool find_python_frames(FindPythonFunction find) noexcept {
    PythonApi found = {};
    if (!found.find(find)) {
        return false;
    }
    api = found;
    has_python.store(true, std::memory_order_release);
    return true;
}

size_t python_frames(uint64_t *ret_words, size_t most) noexcept {
    if (!has_python.load(std::memory_order_acquire) || api.Py_IsInitialized() == 0 ||
        !api.is_held()) {
        return 0;
    }
    const Undisturbed undisturbed;
    size_t count = 0;
    PyObject *frame = api.PyEval_GetFrame();
    if (frame) {
        api.Py_IncRef(frame);
    }
    while (frame && count < most) {
        ret_words[count++] = word_of(frame);
        PyObject *const caller = api.PyFrame_GetBack(frame);
        api.Py_DecRef(frame);
        frame = caller;
    }
    if (frame) {
        api.Py_DecRef(frame);
    }
    return count;
}

const PythonCode &python_code(uint32_t number) noexcept {
    return codes().code(number);
}

} // namespace emm::observe
