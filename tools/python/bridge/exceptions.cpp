#include "exceptions.h"

#include <dlfcn.h>
#include <new>
#include <stdexcept>

namespace emm::bridge {
namespace {

// The runtime of the process; empty in a program without a shared one.
const ExceptionRuntime &shared_runtime() {
    static const ExceptionRuntime found = [] {
        void *const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
        return library ? find_exception_runtime(library) : ExceptionRuntime{};
    }();
    return found;
}

void destroy(void *error) {
    static_cast<std::runtime_error *>(error)->~runtime_error();
}

} // namespace

ExceptionRuntime find_exception_runtime(void *library) noexcept {
    ExceptionRuntime found;
    found.allocate =
        reinterpret_cast<decltype(found.allocate)>(dlsym(library, "__cxa_allocate_exception"));
    found.raise = reinterpret_cast<decltype(found.raise)>(dlsym(library, "__cxa_throw"));
    return found;
}

void throw_error(const std::string &text) {
    std::runtime_error error(text);
    const ExceptionRuntime &runtime = shared_runtime();
    if (!runtime.complete()) {
        throw error;
    }
    void *const thrown = runtime.allocate(sizeof error);
    new (thrown) std::runtime_error(error);
    runtime.raise(thrown, const_cast<std::type_info *>(&typeid(std::runtime_error)), destroy);
    __builtin_unreachable();
}

} // namespace emm::bridge
