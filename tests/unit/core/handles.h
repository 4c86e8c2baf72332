// Helpers of the tests of handles.
#pragma once

#include "catch.h"
#include "recorder.h"

inline emm_memory_info info_of(emm_memory *memory) {
    emm_memory_info info = {};
    info.struct_size = sizeof info;
    REQUIRE(emm_memory_get_info(memory, &info) == EMM_OK);
    return info;
}

inline emm_memory *allocated(emm_context *context, size_t size = 1024) {
    emm_memory *memory = nullptr;
    REQUIRE(emm_memory_alloc(context, size, EMM_STREAM_LEGACY, &memory) == EMM_OK);
    return memory;
}

inline uint64_t late_frees() {
    emm_counters counters = {};
    counters.struct_size = sizeof counters;
    emm_get_counters(&counters);
    return counters.late_frees;
}

inline void note_finalizer(void *) {
    Recorder::the().note("finalizer");
}
