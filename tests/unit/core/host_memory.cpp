#include "host_memory.h"

#include <cstdlib>
#include <new>

#if EMM_TEST_FAILS_ALLOCATIONS
thread_local bool has_memory = true;

void *operator new(size_t size) {
    void *const memory = has_memory ? std::malloc(size) : nullptr;
    if (!memory) {
        throw std::bad_alloc();
    }
    return memory;
}

void operator delete(void *memory) noexcept {
    std::free(memory);
}

void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}
#endif
