#include "pluggable/library.h"

#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string>

namespace emm::pluggable {
namespace {

void expect_given(const char *option, const char *text, const char *what) {
    if (!text || !*text) {
        common::refuse(EMM_E_PLUGIN_SPEC,
                       "pluggable: option %s is missing: %s, as in "
                       "pluggable:lib=/the/path.so,alloc=NAME,free=NAME",
                       option, what);
    }
}

// A constructor that throws would leave the dynamic linker's lock taken, so here it ends the
// process.
void *load(const char *path) noexcept {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// "/the/path.so: undefined symbol: x": the sentence names the path already.
std::string reason(const char *path) {
    const char *const error = dlerror();
    const std::string text = error ? error : "no reason given", prefix = std::string(path) + ": ";
    return text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : text;
}

// A library finds emm's driver under this name only if the driver has the name; the simulated one
// does.
const char *hint_at(const std::string &why) {
    return why.find("libcuda.so.1") == std::string::npos
               ? ""
               : "; it needs the CUDA driver; without a GPU, EMM_DRIVER=sim simulates one";
}

void *open(const char *path) {
    void *const handle = load(path);
    if (!handle) {
        const std::string why = reason(path);
        common::refuse(EMM_E_PLUGIN_UNLOADABLE,
                       "pluggable: library %s: the dynamic linker refused it: %s%s", path,
                       why.c_str(), hint_at(why));
    }
    return handle;
}

template <class Function>
Function find(void *handle, const char *path, const char *option, const char *name) {
    void *const symbol = name ? dlsym(handle, name) : nullptr;
    if (name && !symbol) {
        common::refuse(EMM_E_PLUGIN_UNLOADABLE,
                       "pluggable: library %s: it does not export %s, which option %s names; in "
                       "C++ it must be extern \"C\" and visible",
                       path, name, option);
    }
    return reinterpret_cast<Function>(symbol);
}

// Calls `init` unless an earlier call has returned. Waits for a call in progress, except this
// thread's own.
template <class Call> void call_once(void *init, Call call) {
    static auto *const mutex = new std::recursive_mutex;
    static auto *const called = new std::set<void *>;
    const std::lock_guard lock(*mutex);
    if (!called->insert(init).second) {
        return;
    }
    try {
        call();
    } catch (...) {
        called->erase(init);
        throw;
    }
}

} // namespace

void check(const Names &names) {
    expect_given("lib", names.library, "the absolute path of a library");
    expect_given("alloc", names.alloc, "the name of its function that allocates");
    expect_given("free", names.free, "the name of its function that frees");
    // dlopen would replace $LIB or $ORIGIN.
    if (names.library[0] != '/' || std::strchr(names.library, '$')) {
        common::refuse(EMM_E_PLUGIN_SPEC,
                       "pluggable: option lib: expected an absolute path without '$', found '%s'",
                       names.library);
    }
}

template <class Call> auto Library::call(const char *function, Call call) const {
    const auto fail = [&](const char *what) {
        common::refuse(EMM_E_PLUGIN_EXCEPTION,
                       "pluggable: library %s: its %s threw an exception: %s", names_.library,
                       function, what);
    };
    try {
        return call();
    } catch (const abi::__forced_unwind &) { // the thread is cancelled
        throw;
    } catch (const std::exception &error) {
        fail(error.what());
    } catch (...) {
        fail("not a std::exception");
    }
    __builtin_unreachable();
}

Library::Library(const Names &names) : names_(names) {
    check(names);
    const char *const path = names.library;
    void *const handle = open(path);
    alloc_ = find<decltype(alloc_)>(handle, path, "alloc", names.alloc);
    free_ = find<decltype(free_)>(handle, path, "free", names.free);
    empty_ = find<decltype(empty_)>(handle, path, "empty", names.empty);
    init_ = find<decltype(init_)>(handle, path, "init", names.init);
}

void Library::initialize(int device_count) const {
    if (init_) {
        call_once(reinterpret_cast<void *>(init_),
                  [&] { call(names_.init, [&] { init_(device_count); }); });
    }
}

void *Library::allocate(size_t size, int device, CUstream stream) const {
    return call(names_.alloc, [&]() -> void * {
        try {
            return alloc_(static_cast<ssize_t>(size), device, stream);
        } catch (const std::bad_alloc &) { // RMM reports exhausted memory so
            return nullptr;
        }
    });
}

void Library::free(void *ptr, size_t size, int device, CUstream stream) const {
    call(names_.free, [&] { free_(ptr, static_cast<ssize_t>(size), device, stream); });
}

void Library::empty() const {
    if (empty_) {
        call(names_.empty, [&] { empty_(); });
    }
}

void Library::refuse(emm_status status, const char *problem) const {
    common::refuse(status, "pluggable: library %s: %s %s", names_.library, names_.alloc, problem);
}

} // namespace emm::pluggable
