#include "monitor/answer.h"

#include "catch.h"

#include <cstring>
#include <nlohmann/json.hpp>

using namespace emm::monitor;

namespace {

nlohmann::json body_of(const std::string &message) {
    AnswerHeader header;
    REQUIRE(message.size() >= sizeof header);
    std::memcpy(&header, message.data(), sizeof header);
    CHECK(header.magic == protocol_magic);
    CHECK(header.version == protocol_version);
    CHECK(header.size == message.size() - sizeof header);
    return nlohmann::json::parse(message.substr(sizeof header));
}

ContextFigures figures(uint64_t id) {
    ContextFigures figures;
    figures.id = id;
    figures.stats.emplace();
    figures.stats->live_bytes = UINT64_MAX;
    figures.stats->largest_free_block = id;
    figures.stats->paused_bytes = 7;
    figures.stats->spilled_bytes = 9;
    return figures;
}

} // namespace

TEST_CASE("an answer is one object with the process and its contexts") {
    Collected collected;
    collected.contexts = {figures(5)};
    collected.contexts[0].uuid[0] = 0xab;
    collected.contexts[0].pool = "kv-cache";
    collected.contexts[0].account = {8, 7, 4, 3, "job"};
    emm::loader::Plugin plugin;
    plugin.name = "pool";
    const auto json =
        body_of(answer(RequestKind::figures, {7, "python3", "python3 a.py"}, &plugin, collected));
    CHECK(json.at("pid") == 7);
    CHECK(json.at("command") == "python3 a.py");
    CHECK(json.at("plugin") == "pool");
    REQUIRE(json.at("contexts").size() == 1);
    const auto &context = json.at("contexts")[0];
    CHECK(context.at("context") == 5);
    CHECK(context.at("pool") == "kv-cache");
    CHECK(context.at("uuid") == "GPU-ab000000-0000-0000-0000-000000000000");
    CHECK(context.at("account").dump() ==
          R"({"group":"job","limit_bytes":8,"managers_bytes":4,"program_bytes":3,"used_bytes":7})");
    CHECK(context.at("stats").at("live_bytes") == UINT64_MAX);
    CHECK(context.at("stats").at("largest_free_block") == 5);
    CHECK(context.at("stats").at("paused_bytes") == 7);
    CHECK(context.at("stats").at("spilled_bytes") == 9);
    CHECK(context.at("problem").is_null());
    CHECK_FALSE(json.contains("report"));
}

TEST_CASE("an answer fits in its message, and what does not is counted") {
    Collected collected;
    for (uint64_t id = 0; id < 1000; ++id) {
        collected.contexts.push_back(figures(id));
        collected.contexts.back().stats.reset();
        collected.contexts.back().problem = std::string(1 << 12, '"');
        collected.contexts.back().oldest = std::vector<OldAllocation>(100, {1, 2, "\"\\", ""});
    }
    const std::string hostile(1 << 20, '\\');
    emm::loader::Plugin plugin;
    plugin.name = plugin.version = hostile;
    const std::string message =
        answer(RequestKind::figures, {7, hostile, hostile}, &plugin, collected);
    CHECK(message.size() <= longest_answer);
    const auto json = body_of(message);
    const size_t told = json.at("contexts").size();
    CHECK(told > 0);
    CHECK(told + json.at("contexts_left_out").get<size_t>() == 1000);
}

TEST_CASE(
    "a profile has the largest callers that fit, with their frames, and the sum of the others") {
    Collected collected;
    CHECK(body_of(answer_to_profile(collected)).at("profile").is_null());
    emm::core::LiveProfile &profile = collected.profile.emplace();
    profile.is_tracked = true;
    profile.frames = {
        {"/lib/a.so", "never used", 0}, {"/lib/a.so", "g(int)", 0}, {"t.py", "\"step\"", 7}};
    profile.callers = {{1, 4, 100, 2, {1, 2}, "a/\"b\""}, {0, 4, 50, 1, {2}, ""}};
    CHECK(body_of(answer_to_profile(collected)).at("profile").dump() ==
          R"x({"callers":[[1,4,100,2,[0,1],"a/\"b\""],[0,4,50,1,[1],""]],)x"
          R"x("frames":[["/lib/a.so","g(int)",0],["t.py","\"step\"",7]],)x"
          R"x("is_tracked":true,"lost":0,"others":[0,0],"sample":1})x");
    for (uint32_t i = 0; i < 10000; ++i) {
        profile.frames.push_back({std::string(1000, 'x'), std::to_string(i), 1});
        profile.callers.push_back({0, 4, 10, 1, {i + 3}, ""});
    }
    const std::string message = answer_to_profile(collected);
    CHECK(message.size() <= longest_answer);
    const auto told = body_of(message).at("profile");
    const size_t shown = told.at("callers").size();
    CHECK(shown > 100);
    CHECK(told.at("others")[1] == 10002 - shown);
    CHECK(told.at("others")[0] == (10002 - shown) * 10);
}

TEST_CASE("a pause tells the bytes of all pools, and first the pools of which a part stays") {
    OutsideDone done;
    for (uint64_t i = 0; i < 100; ++i) {
        done.pools.push_back({0, i, "", 4096, i == 90 ? "2 blocks: exported" : ""});
    }
    const auto json = body_of(answer_to_outside(done));
    CHECK(json.at("pause_pools")[0].at("context") == 90);
    CHECK(json.at("pause_pools")[1].at("context") == 0);
    CHECK(json.at("pause_pools").size() == most_contexts);
    CHECK(json.at("pause_pools_left_out") == 100 - most_contexts);
    CHECK(json.at("pause_bytes") == 100 * 4096);
}

TEST_CASE("names with control characters and bytes that are no UTF-8 come as plain text") {
    const auto json =
        body_of(answer(RequestKind::figures, {7, "\033[2J", "a\xff\nb"}, nullptr, {}));
    CHECK(json.at("program") == "?[2J");
    CHECK(json.at("command") == "a\xef\xbf\xbd b");
    CHECK(json.at("plugin").is_null());
    CHECK(json.at("contexts").empty());
}

TEST_CASE("a report that was not written is null, and a long one is cut") {
    Collected collected;
    CHECK(body_of(answer(RequestKind::report, {}, nullptr, collected)).at("report").is_null());
    collected.report = std::string(1 << 20, '\n');
    const std::string message = answer(RequestKind::report, {}, nullptr, collected);
    CHECK(message.size() <= longest_answer);
    CHECK(body_of(message).at("report").get<std::string>().size() > 10'000);
}

TEST_CASE("a process knows its own name and arguments") {
    const Program program = this_program();
    CHECK(program.pid == getpid());
    CHECK(program.name == "core-tests");
    CHECK(program.command.find("core-tests") != std::string::npos);
}
