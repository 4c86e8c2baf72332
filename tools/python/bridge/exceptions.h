#pragma once

#include <cstddef>
#include <string>
#include <typeinfo>

namespace emm::bridge {

// The functions with which the program and its libraries throw. This library has a C++ runtime of
// its own inside. An exception that one runtime throws and another catches stays counted in both
// (std::uncaught_exceptions).
struct ExceptionRuntime {
    void *(*allocate)(size_t size) = nullptr;
    void (*raise)(void *exception, std::type_info *, void (*destroy)(void *)) = nullptr;

    bool complete() const { return allocate && raise; }
};

// The runtime of a library, of dlopen, and of its dependencies.
ExceptionRuntime find_exception_runtime(void *library) noexcept;

// Throws a std::runtime_error.
[[noreturn]] void throw_error(const std::string &text);

} // namespace emm::bridge
