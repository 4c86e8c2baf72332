#pragma once

#include "common/driver.h"

namespace emm::pluggable {

// The names that the options give.
struct Names {
    const char *library, *alloc, *free;
    const char *empty, *init; // NULL: not given
};

// Throws if a required name is missing.
void check(const Names &names);

// A library with PyTorch's pair of functions, and optional further ones. The library is loaded once
// in a process and never unloaded. If an exception leaves a function, it becomes a PluginError that
// names the library and the function.
class Library {
public:
    // Throws if the library, or a function in it, is missing.
    explicit Library(const Names &names);

    // Comes before the other calls. `init` is called once in a process; if it throws, this throws
    // too, and the next call tries again. Returns after `init` has returned.
    void initialize(int device_count) const;

    // NULL: the library has no memory left.
    void *allocate(size_t size, int device, CUstream stream) const;
    void free(void *ptr, size_t size, int device, CUstream stream) const;
    bool can_empty() const { return empty_; }
    void empty() const;

    // Throws: the library has returned memory that cannot be served.
    [[noreturn]] void refuse(emm_status status, const char *problem) const;

private:
    template <class Call> auto call(const char *function, Call call) const;

    const Names names_;
    void *(*alloc_)(ssize_t, int, CUstream);
    void (*free_)(void *, ssize_t, int, CUstream);
    void (*empty_)();
    void (*init_)(int);
};

} // namespace emm::pluggable
