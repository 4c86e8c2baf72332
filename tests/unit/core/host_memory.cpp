#include "host_memory.h"

#include <cstdlib>
#include <new>

#if EMM_TEST_FAILS_ALLOCATIONS
thread_local bool has_memory = true;
thread_local uint64_t allocations_left = UINT64_MAX;

void *operator new(size_t size) {
    has_memory = has_memory && allocations_left-- != 0;
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
