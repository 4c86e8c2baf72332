// Helpers of the tests of handles.
#pragma once

#include "catch.h"
#include "recorder.h"

inline emm_memory *allocated(emm_context *context, size_t size = 1024) {
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, size, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    return memory;
}

inline uint64_t late_frees() {
    return counters().late_frees;
}

inline void note_finalizer(void *) {
    Recorder::the().note("finalizer");
}
