// Host memory of which a test may deprive its thread.
#pragma once

#include <cstdint>

// A sanitizer has its own operator new.
#if EMM_TEST_FAILS_ALLOCATIONS
extern thread_local bool has_memory;
extern thread_local uint64_t allocations_left; // then `has_memory` is false
#endif
