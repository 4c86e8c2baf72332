// Host memory of which a test may deprive its thread, and whose use it may count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// A sanitizer has its own operator new.
#if EMM_TEST_FAILS_ALLOCATIONS
extern thread_local bool has_memory;
extern thread_local uint64_t allocations_left; // then `has_memory` is false

// The thread's allocations get a page each, which is never reused.
extern thread_local bool has_pages;
// How many of these pages `code` touches.
size_t pages_touched(const std::function<void()> &code);
#endif
