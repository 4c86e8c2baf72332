#include "top/view.h"

#include "catch.h"

#include <nlohmann/json.hpp>

#include <sstream>

using namespace emm::tool::top;

namespace {

Process shown_process(int64_t pid, const std::string &command, uint64_t reserved) {
    Process process;
    process.name = command + std::to_string(pid);
    process.pid = pid;
    process.program = process.command = command;
    process.plugin = "pool";
    process.contexts.emplace_back();
    Context &context = process.contexts[0];
    context.id = 1;
    context.stats.emplace();
    context.stats->live_bytes = reserved / 2;
    context.stats->cached_bytes = reserved / 4;
    context.stats->reserved_bytes = reserved;
    context.stats->peak_reserved_bytes = reserved * 2;
    return process;
}

std::vector<std::string> table_lines(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream input(text);
    for (std::string line; std::getline(input, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::vector<Process> two_processes() {
    std::vector<Process> processes = {shown_process(20, "/usr/bin/python3 train.py", 1 << 20),
                                      shown_process(3, "serve", 4 << 20)};
    processes[1].contexts[0].allocations_rate = 1234.4;
    return processes;
}

} // namespace

TEST_CASE("a table has a row for each context, the largest first") {
    CHECK(table_text(two_processes(), Column::reserved, {}, false) ==
          "PID  PROGRAM           PLUGIN  DEV       LIVE     CACHED  RESERVED     PEAK  ALLOC/S\n"
          "  3  serve             pool      0    2.0 MiB    1.0 MiB   4.0 MiB  8.0 MiB     1234\n"
          " 20  python3 train.py  pool      0  512.0 KiB  256.0 KiB   1.0 MiB  2.0 MiB        -\n");
}

TEST_CASE("bounds, what they leave and the program's own memory have columns where there are any") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].account = {8 << 20, 3 << 20, 1 << 20, 2 << 20, ""};
    const auto lines = table_lines(table_text(processes, Column::limit, {}, false));
    REQUIRE(lines.size() == 3);
    const auto end_of = [](const std::string &line) { return line.substr(line.size() - 43); };
    CHECK(end_of(lines[0]) == "   PEAK    LIMIT     FREE   DRIVER  ALLOC/S");
    CHECK(end_of(lines[1]) == "2.0 MiB  8.0 MiB  5.0 MiB  2.0 MiB        -");
    CHECK(end_of(lines[2]) == "8.0 MiB                                1234");
    CHECK(to_json(processes, Column::limit)["processes"][0]["contexts"][0]["account"].dump() ==
          R"({"limit_bytes":8388608,"free_bytes":5242880,"used_bytes":3145728,)"
          R"("managers_bytes":1048576,"program_bytes":2097152,"group":null})");
}

TEST_CASE("a bound stays in 80 columns, beside what is reserved") {
    std::vector<Process> processes = two_processes();
    for (Process &process : processes) {
        process.contexts[0].account = {8 << 20, 3 << 20, 1 << 20, 2 << 20, ""};
    }
    const std::string text = table_text(processes, Column::limit, {80, 0}, false);
    CHECK_THAT(table_lines(text)[0], ContainsSubstring("RESERVED") && ContainsSubstring("LIMIT"));
}

TEST_CASE("host memory in place of the device's has a column where there is any") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].stats->spilled_bytes = 3 << 20;
    const auto lines = table_lines(table_text(processes, Column::spilled, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].find("   PEAK  SPILLED  ALLOC/S") != std::string::npos);
    CHECK(lines[1].find("2.0 MiB  3.0 MiB        -") != std::string::npos);
}

TEST_CASE("freed memory that waits for the device has a column where there is any") {
    std::vector<Process> processes = two_processes();
    CHECK(table_text(processes, Column::pid, {}, false).find("WAITING") == std::string::npos);
    processes[0].contexts[0].stats->pending_bytes = 3 << 20;
    const auto lines = table_lines(table_text(processes, Column::waiting, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].find("  WAITING  RESERVED") != std::string::npos);
    CHECK(lines[1].find("  3.0 MiB  ") != std::string::npos);
}

TEST_CASE("failures have a column where there are any") {
    std::vector<Process> processes = two_processes();
    CHECK(table_text(processes, Column::pid, {}, false).find("FAILED") == std::string::npos);
    processes[1].contexts[0].stats->failures = 12;
    const auto lines = table_lines(table_text(processes, Column::failures, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].find("   PEAK  FAILED  ALLOC/S") != std::string::npos);
    CHECK(lines[1].find("8.0 MiB      12     1234") != std::string::npos);
}

TEST_CASE("a plugin is shown with its options, and with those that have changed since") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].spec = "/opt/lib/libemm-mine.so:path=/tmp/x,max=64MiB";
    processes[0].contexts[0].changed_options = "max=16MiB";
    processes[1].contexts[0].spec = "count+pool:slack=0";
    const auto lines = table_lines(table_text(processes, Column::pid, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[1].find("  count+pool:slack=0 ") != std::string::npos);
    CHECK(lines[2].find("  libemm-mine.so:path=/tmp/x,max=64MiB, now max=16MiB ") !=
          std::string::npos);
    const auto told = to_json(processes, Column::pid)["processes"][1]["contexts"][0];
    CHECK(told["spec"] == processes[0].contexts[0].spec);
    CHECK(told["changed_options"] == "max=16MiB");
}

TEST_CASE("the group that a process shares its bound with has a column where there is any") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].account = {8 << 20, 0, 0, 0, "job"};
    const auto lines = table_lines(table_text(processes, Column::limit, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].find("    LIMIT     FREE  GROUP  ALLOC/S") != std::string::npos);
    CHECK(lines[1].find("  8.0 MiB  8.0 MiB  job          -") != std::string::npos);
    CHECK(to_json(processes, Column::limit)["processes"][0]["contexts"][0]["account"]["group"] ==
          "job");
}

TEST_CASE("a pool that is paused says so beside its name") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].stats->paused_bytes = 1;
    processes[1].contexts[0].pool = "kv-cache";
    processes[1].contexts[0].stats->paused_bytes = 2 << 20;
    processes[1].contexts[0].stats->host_reserved_bytes = 7 << 20;
    const std::string text = table_text(processes, Column::pid, {}, false);
    CHECK(text.find(" 0 paused ") != std::string::npos);
    CHECK(text.find(" 0 kv-cache paused ") != std::string::npos);
    CHECK(text.find("HOST") != std::string::npos);
    CHECK(text.find(" 7.0 MiB ") != std::string::npos);
}

TEST_CASE("rows are sorted by any column, numbers from the largest on") {
    const std::vector<Process> processes = two_processes();
    const auto first = [&](const char *name) {
        Column column;
        REQUIRE(find_column(name, column));
        CHECK(name_of(column) == name);
        return sorted_rows(processes, column)[0].process->pid;
    };
    CHECK(first("pid") == 3);
    CHECK(first("program") == 20);
    CHECK(first("plugin") == 3);
    CHECK(first("device") == 3);
    CHECK(first("live") == 3);
    CHECK(first("cached") == 3);
    CHECK(first("reserved") == 3);
    CHECK(first("peak") == 3);
    CHECK(first("rate") == 3);
    CHECK(first("oldest") == 3);
    Column column;
    CHECK_FALSE(find_column("colour", column));
    REQUIRE(find_column("Failed", column)); // by its heading
    CHECK(name_of(column) == "failures");
    CHECK(column_names() ==
          "pid, program, plugin, device, live, cached, waiting, reserved, peak, spilled, host, "
          "failures, limit, free, group, driver, rate or oldest");
}

TEST_CASE("the next column after the last is the first") {
    Column column = Column::pid;
    for (int i = 0; i < 18; ++i) {
        column = next_column(column);
    }
    CHECK(column == Column::pid);
}

TEST_CASE("no line is wider than the terminal, and the ids and reserved bytes stay longest") {
    std::vector<Process> processes = two_processes();
    processes[0].command = "/opt/" + std::string(300, 'x') + "训练";
    processes[1].problem = "no answer for 3.0 s: the process is stopped";
    for (size_t width = 1; width <= 200; ++width) {
        const std::vector<std::string> lines =
            table_lines(table_text(processes, Column::reserved, {width, 0}, false));
        INFO(width);
        REQUIRE(lines.size() == 4);
        for (const std::string &line : lines) {
            CHECK(width_of(line) <= width);
        }
    }
    const std::string narrow = table_text(two_processes(), Column::reserved, {24, 0}, false);
    CHECK(narrow == "PID  PROGRAM    RESERVED\n"
                    "  3  serve       4.0 MiB\n"
                    " 20  pyth~n.py   1.0 MiB\n");
}

TEST_CASE("rows that do not fit in the height are counted, and all that fit are shown") {
    std::vector<Process> processes;
    for (int i = 1; i <= 10; ++i) {
        processes.push_back(shown_process(i, "a", 1));
    }
    processes[0].problem = "no answer for 1.0 s"; // takes two lines
    for (size_t height = 2; height <= 14; ++height) {
        const std::vector<std::string> lines =
            table_lines(table_text(processes, Column::pid, {0, height}, false));
        INFO(height);
        CHECK(lines.size() <= height);
        CHECK((lines.back().find("more rows") != std::string::npos) == (height < 12));
    }
    CHECK(table_lines(table_text(processes, Column::pid, {0, 4}, false)).back() ==
          "  ! 9 more rows");
}

TEST_CASE("what is wrong with a process stands under its row, in red if that is wanted") {
    std::vector<Process> processes = {shown_process(1, "a", 1)};
    processes[0].stuck = 2'500'000'000;
    processes[0].contexts[0].stats.reset();
    processes[0].contexts[0].problem = "the plugin has not answered yet";
    const std::string plain = table_text(processes, Column::pid, {}, false);
    CHECK(plain.find("\n  ! the plugin has not answered for 2.5 s\n") != std::string::npos);
    CHECK(plain.find('\033') == std::string::npos);
    const std::string styled = table_text(processes, Column::pid, {}, true);
    CHECK(styled.find("\033[31m  ! the plugin has not answered for 2.5 s\033[0m\n") !=
          std::string::npos);
}

TEST_CASE("a process without a context has a row, and one with too many says how many more") {
    std::vector<Process> processes = {shown_process(1, "a", 1), shown_process(2, "b", 1)};
    processes[0].contexts.clear();
    processes[1].contexts_left_out = 36;
    const std::string text = table_text(processes, Column::pid, {}, false);
    CHECK(text.find("\n  ! no context is served\n") != std::string::npos);
    CHECK(text.find("\n  ! 36 more contexts\n") != std::string::npos);
}

TEST_CASE("the oldest allocations have a column if any process tracks them") {
    std::vector<Process> processes = {shown_process(1, "a", 1)};
    processes[0].contexts[0].oldest = {
        {3 << 20, 7'300'000'000'000, "/opt/torch/lib/libtorch.so", ""}};
    const std::string text = table_text(processes, Column::oldest, {}, false);
    CHECK(text.find("OLDEST\n") != std::string::npos);
    CHECK(text.find("  3.0 MiB 2 h libtorch.so\n") != std::string::npos);
}

TEST_CASE(
    "the oldest allocations are told by their lines of Python, and leave the program its name") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].oldest = {
        {3 << 20, 7'000'000'000, "/lib/_ctypes.so", "train.py:12 (step)"}};
    const std::string text = table_text(processes, Column::pid, {}, false);
    CHECK(text.find("3.0 MiB 7 s train.py:12 (step)") != std::string::npos);
    for (const size_t width : {60, 80, 100, 120}) {
        INFO(width);
        CHECK(table_text(processes, Column::pid, {width, 0}, false).find("python3 train.py ") !=
              std::string::npos);
    }
}

TEST_CASE("names that are hostile stay in their cells") {
    std::vector<Process> processes = {shown_process(1, "\033]0;x\007\nroot", 1)};
    processes[0].plugin = std::string(1 << 20, '\n');
    const std::string text = table_text(processes, Column::pid, {}, false);
    CHECK(table_lines(text).size() == 2);
    CHECK(text.find('\033') == std::string::npos);
    CHECK(text.size() < 4096);
}

TEST_CASE("--json has every figure, and null for what is not known") {
    std::vector<Process> processes = two_processes();
    processes[0].contexts[0].stats.reset();
    const emm::tool::Json json = to_json(processes, Column::reserved).at("processes");
    REQUIRE(json.size() == 2);
    CHECK(json[0].at("pid") == 3);
    CHECK(json[0].at("contexts")[0].at("stats").at("reserved_bytes") == 4 << 20);
    CHECK(json[0].at("contexts")[0].at("allocations_per_second") == 1234.4);
    CHECK(json[0].at("problem").is_null());
    CHECK(json[1].at("contexts")[0].at("stats").is_null());
    CHECK(json[1].at("contexts")[0].at("allocations_per_second").is_null());
}

TEST_CASE("a named pool has a row of its own, with its name behind the device") {
    Process process = shown_process(3, "serve", 4 << 20);
    process.contexts.push_back(process.contexts[0]);
    process.contexts[1].pool = "kv-cache";
    const std::vector<std::string> lines =
        table_lines(table_text({process}, Column::reserved, {}, false));
    REQUIRE(lines.size() == 3);
    CHECK(lines[1].find("kv-cache") == std::string::npos);
    CHECK(lines[2].find(" 0 kv-cache ") != std::string::npos);
    const auto json = to_json({process}, Column::reserved);
    const auto &contexts = json.at("processes")[0].at("contexts");
    CHECK(contexts[0].at("pool").is_null());
    CHECK(contexts[1].at("pool") == "kv-cache");
}
