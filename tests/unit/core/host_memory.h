// Host memory of which a test may deprive its thread.
#pragma once

// A sanitizer has its own operator new.
#if EMM_TEST_FAILS_ALLOCATIONS
extern thread_local bool has_memory;
#endif
