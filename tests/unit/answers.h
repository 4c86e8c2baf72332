// Answers of emm, as values. A refusal fails the test, with emm's sentence.
#pragma once

#include "catch.h"
#include "parts/sized.h"

#include <emm/emm.h>

inline void expect_ok(emm_status status) {
    INFO(emm_last_error()->text);
    REQUIRE(status == EMM_OK);
}

template <class Answer, class Ask> Answer answer_of(Ask ask) {
    auto answer = sized<Answer>();
    expect_ok(ask(&answer));
    return answer;
}

inline emm_context *context_for_device(int device = 0) {
    emm_context *context = nullptr;
    expect_ok(emm_context_for_device(device, &context));
    return context;
}

inline emm_context *context_from(CUctx_st *cuda_context) {
    emm_context *context = nullptr;
    expect_ok(emm_context_from(cuda_context, &context));
    return context;
}

inline emm_context *context_named(emm_context *context, const char *name,
                                  const char *options = nullptr) {
    emm_context *pool = nullptr;
    expect_ok(emm_context_named(context, name, options, &pool));
    return pool;
}

inline emm_deviceptr allocate_in(emm_context *context, size_t size,
                                 emm_stream stream = EMM_STREAM_UNORDERED) {
    emm_deviceptr ptr = 0;
    expect_ok(emm_memalloc(context, size, stream, &ptr));
    return ptr;
}

inline emm_stats stats_of(emm_context *context) {
    return answer_of<emm_stats>([=](emm_stats *ret) { return emm_get_stats(context, ret); });
}

inline emm_context_info info_of(emm_context *context) {
    return answer_of<emm_context_info>(
        [=](emm_context_info *ret) { return emm_context_get_info(context, ret); });
}

inline emm_memory_info info_of(emm_memory *memory) {
    return answer_of<emm_memory_info>(
        [=](emm_memory_info *ret) { return emm_memory_get_info(memory, ret); });
}

inline emm_counters counters() {
    return answer_of<emm_counters>(&emm_get_counters);
}

inline emm_driver_info driver_info() {
    return answer_of<emm_driver_info>(&emm_get_driver);
}

inline emm_plugin_info plugin_info() {
    return answer_of<emm_plugin_info>(&emm_get_plugin);
}
