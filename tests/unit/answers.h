// Answers of emm, as values. A refusal fails the test.
#pragma once

#include "catch.h"
#include "parts/sized.h"

#include <emm/emm.h>

template <class Answer, class Ask> Answer answer_of(Ask ask) {
    auto answer = sized<Answer>();
    REQUIRE(ask(&answer) == EMM_OK);
    return answer;
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
