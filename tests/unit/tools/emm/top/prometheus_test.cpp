#include "top/view.h"

#include "catch.h"

#include <regex>
#include <set>
#include <sstream>

using namespace emm::tool::top;

namespace {

Process exposed_process(int64_t pid, const std::string &program) {
    Process process;
    process.pid = pid;
    process.program = program;
    process.plugin = "pool";
    process.contexts.emplace_back();
    process.contexts[0].id = 1;
    process.contexts[0].uuid = "GPU-1";
    process.contexts[0].stats.emplace();
    process.contexts[0].stats->live_bytes = (UINT64_C(1) << 53) - 1;
    process.contexts[0].stats->allocations = 12;
    return process;
}

// Checks the rules of `promtool check metrics` and of the format's own description. Gives the
// samples.
std::set<std::string> check_format(const std::string &text) {
    const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
    const std::regex sample("([a-zA-Z_:][a-zA-Z0-9_:]*)\\{([a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\\\]|"
                            "\\\\[\\\\n\"])*\"(?:,[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\\\]|\\\\[\\\\n"
                            "\"])*\")*)\\} ([0-9.e+]+)");
    std::set<std::string> families, samples;
    std::string family, line;
    REQUIRE(text.back() == '\n');
    std::istringstream lines(text);
    while (std::getline(lines, line)) {
        INFO(line);
        std::smatch match;
        if (std::regex_match(line, match, help)) {
            family = match[1];
            CHECK(families.insert(family).second); // a family's lines are in one place
            REQUIRE(std::getline(lines, line));
            REQUIRE(std::regex_match(line, match, type));
            CHECK(match[1] == family);
            const bool is_total = family.size() > 6 && family.substr(family.size() - 6) == "_total";
            CHECK((match[2] == "counter") == is_total);
        } else {
            REQUIRE(std::regex_match(line, match, sample));
            CHECK(match[1] == family);
            CHECK(samples.insert(std::string(match[1]) + "{" + std::string(match[2]) + "}").second);
        }
    }
    return samples;
}

} // namespace

TEST_CASE("the text has a description, a type and a sample for each figure") {
    Process process = exposed_process(7, "python3");
    process.contexts_left_out = 3;
    const std::string text = prometheus_text({process});
    const std::set<std::string> samples = check_format(text);
    CHECK(samples.size() == 24);
    CHECK(samples.count("emm_contexts_left_out{pid=\"7\",program=\"python3\"}") == 1);
    CHECK(text.find("emm_contexts_left_out{pid=\"7\",program=\"python3\"} 3\n") !=
          std::string::npos);
    CHECK(text.find("# HELP emm_live_bytes Device memory handed out, as asked for.\n"
                    "# TYPE emm_live_bytes gauge\n"
                    "emm_live_bytes{pid=\"7\",program=\"python3\",plugin=\"pool\",device=\"0\","
                    "uuid=\"GPU-1\",context=\"1\"} 9007199254740991\n") != std::string::npos);
    CHECK(text.find("# TYPE emm_allocations_total counter\n") != std::string::npos);
    CHECK(text.find("# HELP emm_device_bytes Memory of the device, as the driver tells; a limit of "
                    "the plugin does not show.\n") != std::string::npos);
    CHECK(text.find("emm_process_answers{pid=\"7\",program=\"python3\"} 1\n") != std::string::npos);
}

TEST_CASE("names with quotes, backslashes and line ends keep to their labels") {
    CHECK(escaped_label("a\"b\\c\nd\033") == "a\\\"b\\\\c d?");
    check_format(prometheus_text({exposed_process(1, "\"} 1\nevil{x=\"\\"),
                                  exposed_process(2, "\\"), exposed_process(3, ""),
                                  exposed_process(4, "\xff\n\r"), exposed_process(5, "训练")}));
}

TEST_CASE("a named pool's samples have its name") {
    Process process = exposed_process(7, "a");
    process.contexts.push_back(process.contexts[0]);
    process.contexts[1].pool = "kv-cache";
    const std::string text = prometheus_text({process});
    check_format(text);
    CHECK(text.find("context=\"1\",pool=\"kv-cache\"} ") != std::string::npos);
    CHECK(text.find("copy=") == std::string::npos);
}

TEST_CASE("no two samples have the same labels, even of processes that cannot be told apart") {
    const std::set<std::string> samples = check_format(prometheus_text(
        {exposed_process(7, "a"), exposed_process(7, "a"), exposed_process(7, "a")}));
    CHECK(samples.size() == 3 * 24);
    CHECK(samples.count("emm_process_answers{pid=\"7\",program=\"a\",copy=\"3\"}") == 1);
}

TEST_CASE("a process that does not answer has no figures, and says so with a 0") {
    Process silent = exposed_process(7, "a");
    silent.problem = "no answer for 1.0 s";
    silent.contexts.clear();
    const std::string text = prometheus_text({silent});
    check_format(text);
    CHECK(text.find("emm_process_answers{pid=\"7\",program=\"a\"} 0\n") != std::string::npos);
    CHECK(text.find("emm_live_bytes{") == std::string::npos);
    check_format(prometheus_text({}));
}
