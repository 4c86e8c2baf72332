#include "top/process.h"

#include "catch.h"
#include "monitor/protocol.h"

#include <cstring>
#include <random>

using namespace emm::tool::top;
namespace monitor = emm::monitor;

namespace {

std::string framed(const std::string &json, uint32_t version = monitor::protocol_version) {
    const monitor::AnswerHeader header = {monitor::protocol_magic, version,
                                          static_cast<uint32_t>(json.size()), 0};
    return std::string(reinterpret_cast<const char *>(&header), sizeof header) + json;
}

Process answered(const std::string &text) {
    Process process;
    read_answer(text, process);
    return process;
}

bool is_harmless(const std::string &text) {
    return std::none_of(text.begin(), text.end(),
                        [](char byte) { return (byte >= 0 && byte < ' ') || byte == 0x7f; });
}

const char *const whole =
    R"({"emm":"0.1.0","pid":7,"program":"python3.11","command":"python3 train.py","plugin":"pool",
        "plugin_version":"0.1","stuck_ns":5,"later":[1],"contexts":[{"device":1,"context":3,
        "uuid":"GPU-1","pci":"0:1","total_bytes":80,"pending_frees":2,"pending_free_bytes":64,
        "at_ns":9,"problem":null,"account":{"limit_bytes":80,"used_bytes":70,"managers_bytes":40,"program_bytes":30,"group":"job"},
        "oldest":[{"size":5,"age_ns":6,"module":"libtorch.so","caller":"a.py:3"}],
        "stats":{"live_bytes":1,"live_count":2,"cached_bytes":3,"reserved_bytes":4,
        "peak_live_bytes":5,"peak_reserved_bytes":6,"pending_bytes":7,"allocations":8,"frees":9,
        "failures":10,"host_live_bytes":11,"host_reserved_bytes":12,"largest_free_block":13,"paused_bytes":14,"spilled_bytes":15}}],"contexts_left_out":4})";

} // namespace

TEST_CASE("a profile is taken over, and frames that are not there are left out") {
    const Process process = answered(framed(
        R"x({"profile":{"is_tracked":true,"sample":4,"lost":1,"frames":[["/a.so","g(int)",0],["t.py","s\u001b",7],5],)x"
        R"x("callers":[[1,4,100,2,[0,1,9,-1],"a\u001bb"],7,[]],"others":[5,6]}})x"));
    REQUIRE(process.profile);
    CHECK((process.profile->is_tracked && process.profile->sample == 4 &&
           process.profile->lost == 1));
    CHECK((process.profile->other_bytes == 5 && process.profile->other_count == 6));
    REQUIRE(process.profile->callers.size() == 3);
    const LiveProfile::Caller &caller = process.profile->callers[0];
    CHECK((caller.device == 1 && caller.memory == 4 && caller.bytes == 100 && caller.count == 2));
    CHECK(caller.frames == std::vector<size_t>{0, 1, 0});
    CHECK(caller.tag == "a?b");
    CHECK(process.profile->frames[1].function == "s?");
    CHECK(process.profile->frames[1].line == 7);
    CHECK_FALSE(answered(framed(whole)).profile);
}

TEST_CASE("all that a process answers is taken over, and what is new is ignored") {
    const Process process = answered(framed(whole));
    CHECK(process.problem == "");
    CHECK(process.pid == 7);
    CHECK(process.command == "python3 train.py");
    CHECK(process.plugin == "pool");
    CHECK(process.stuck == 5);
    CHECK(process.contexts_left_out == 4);
    REQUIRE(process.contexts.size() == 1);
    const Context &context = process.contexts[0];
    CHECK(context.device == 1);
    CHECK(context.id == 3);
    CHECK(context.pending_frees == 2);
    CHECK(context.at == 9);
    CHECK(context.account.limit_bytes == 80);
    CHECK(context.account.used_bytes == 70);
    CHECK(context.account.managers_bytes == 40);
    CHECK(context.account.program_bytes == 30);
    CHECK(context.account.group == "job");
    CHECK(context.problem == "");
    REQUIRE(context.stats);
    CHECK(context.stats->live_bytes == 1);
    CHECK(context.stats->cached_bytes == 3);
    CHECK(context.stats->peak_reserved_bytes == 6);
    CHECK(context.stats->allocations == 8);
    CHECK(context.stats->host_reserved_bytes == 12);
    CHECK(context.stats->largest_free_block == 13);
    CHECK(context.stats->paused_bytes == 14);
    CHECK(context.stats->spilled_bytes == 15);
    REQUIRE(context.oldest.size() == 1);
    CHECK(context.oldest[0].size == 5);
    CHECK(context.oldest[0].module == "libtorch.so");
    CHECK(context.oldest[0].caller == "a.py:3");
}

TEST_CASE("the kernel's word on a process id outweighs the process's own") {
    Process process;
    process.pid = 12;
    read_answer(framed(whole), process);
    CHECK(process.pid == 12);
}

TEST_CASE("a message that is no answer is said to be none") {
    CHECK(answered("").problem == "its answer: expected version 1, found 0 bytes");
    CHECK(answered(std::string(100, 'x')).problem ==
          "its answer: expected version 1, found something else");
    CHECK(answered(framed(whole, 2)).problem == "its answer: expected version 1, found version 2");
    CHECK(answered(framed(whole) + "x").problem.find(" bytes of ") != std::string::npos);
    CHECK(answered(framed("[1]")).problem.find("other than a JSON object") != std::string::npos);
    CHECK(answered(framed("{\"pid\":")).problem.find("other than a JSON object") !=
          std::string::npos);
    CHECK(answered(framed("")).problem.find("other than a JSON object") != std::string::npos);
}

TEST_CASE("values of the wrong type, and numbers out of range, count as not said") {
    const Process process = answered(framed(
        R"({"pid":"7","program":3,"contexts":[5,null,{"device":1e99,"context":-1,"stats":[],
            "at_ns":18446744073709551615},{"stats":{"live_bytes":"1","cached_bytes":-3}}]})"));
    CHECK(process.problem == "");
    CHECK(process.pid == 0);
    CHECK(process.program == "");
    REQUIRE(process.contexts.size() == 2);
    CHECK(process.contexts[0].device == 0);
    CHECK(process.contexts[0].id == 0);
    CHECK(process.contexts[0].at == 0);
    CHECK(process.contexts[0].problem != "");
    REQUIRE(process.contexts[1].stats);
    CHECK(process.contexts[1].stats->live_bytes == 0);
    CHECK(process.contexts[1].stats->cached_bytes == 0);
}

TEST_CASE("control characters and long texts of an answer are made harmless") {
    const std::string million(1 << 20, 'a');
    const Process process = answered(
        framed(R"({"program":"\u001b[2J\n\u202edel","plugin":")" + million +
               R"(","report":"one\u001b[31m\ntwo\r\n","contexts":[{"problem":"a\u0007b"}]})"));
    CHECK(process.program == "?[2J ?del");
    CHECK(process.plugin.size() <= 4096);
    CHECK(process.report == "one?[31m\ntwo \n");
    REQUIRE(process.contexts.size() == 1);
    CHECK(process.contexts[0].problem == "a?b");
}

TEST_CASE("no more contexts are taken than a process may tell of") {
    std::string list = "{}";
    for (int i = 0; i < 1000; ++i) {
        list += ",{}";
    }
    CHECK(answered(framed("{\"contexts\":[" + list + "]}")).contexts.size() ==
          monitor::most_contexts);
}

TEST_CASE("answers with any bytes changed or cut off do no harm") {
    std::mt19937 random(1);
    const std::string good = framed(whole);
    for (int i = 0; i < 20000; ++i) {
        std::string bad = good.substr(0, i % 4 == 0 ? random() % good.size() : good.size());
        for (unsigned k = random() % 8; k > 0 && !bad.empty(); --k) {
            bad[random() % bad.size()] = static_cast<char>(random());
        }
        const uint32_t size = static_cast<uint32_t>(bad.size() - sizeof(monitor::AnswerHeader));
        if (bad.size() > sizeof(monitor::AnswerHeader) && i % 2 == 0) { // let more of them through
            std::memcpy(bad.data(), good.data(), sizeof(monitor::AnswerHeader));
            std::memcpy(bad.data() + offsetof(monitor::AnswerHeader, size), &size, sizeof size);
        }
        const Process process = answered(bad);
        CHECK(is_harmless(process.program + process.command + process.plugin + process.problem));
        CHECK(process.contexts.size() <= monitor::most_contexts);
    }
}

TEST_CASE("an answer that is nested a thousand levels deep does no harm") {
    const std::string deep = std::string(40000, '[') + std::string(40000, ']');
    CHECK(answered(framed("{\"contexts\":" + deep + "}")).contexts.empty());
    CHECK(answered(framed(std::string(90000, '['))).problem != "");
}
