#include "observe/memory_report.h"
#include "observe/text.h"

#include "catch.h"

#include <nlohmann/json.hpp>

using namespace emm::observe;

namespace {

constexpr uint64_t gib = uint64_t(1) << 30;

MemoryReport usual() {
    MemoryReport report;
    report.request = MemoryReport::Request{2 * gib, false, "/opt/libtorch_cuda.so+0x12"};
    report.plugin = "pool";
    report.of_plugin = MemoryReport::Plugin{60 * gib, 1234, gib, 0, 61 * gib, 4096, gib / 4};
    report.of_driver = MemoryReport::Driver{gib / 2, 80 * gib};
    report.processes = {{7, "python", 62 * gib}, {8, "other", 10 * gib}};
    report.own_process = 7;
    report.tracked = MemoryReport::Tracked{
        1,
        0,
        {{"/opt/libc10_cuda.so", 50 * gib, 1000}, {"/opt/libcupy.so", 10 * gib, 234}},
        {},
        {}};
    return report;
}

std::string text_of(const MemoryReport &report) {
    std::string text;
    for (const std::string &line : report_lines(report)) {
        text += line + "\n";
    }
    return text;
}

nlohmann::json json_of(const MemoryReport &report) {
    return nlohmann::json::parse(report_json(report)).at("memory");
}

bool has_hint(const MemoryReport &report, const std::string &part) {
    for (const std::string &hint : hints_for(report)) {
        if (hint.find(part) != std::string::npos) {
            return true;
        }
    }
    return false;
}

} // namespace

TEST_CASE("a bound of the device is told with what it is used for") {
    MemoryReport report = usual();
    CHECK(json_of(report).at("bound") == "");
    report.bound = "8.00 GiB of EMM_LIMIT's 8.00 GiB used: managers 6.00 GiB";
    CHECK_THAT(text_of(report), ContainsSubstring("  bound      " + report.bound + "\n"));
    CHECK_THAT(text_of(report), ContainsSubstring("of 80.00 GiB, within the bound"));
    CHECK(json_of(report).at("bound") == report.bound);
}

TEST_CASE("with a bound the report says whether that is full or the device") {
    MemoryReport report = usual(); // for 2 GiB
    CHECK(json_of(report).at("full") == "");
    report.bound = "61.00 GiB of EMM_LIMIT's 64.00 GiB used";
    report.of_bound = {gib, 64 * gib};
    report.of_driver = {gib, 64 * gib};
    report.of_device = {16 * gib, 80 * gib};
    CHECK_THAT(text_of(report),
               ContainsSubstring("  full       the bound: 1.00 GiB of it are left for 2.00 GiB, "
                                 "and 16.00 GiB of the device\n"));
    CHECK(json_of(report).at("full") == "bound");
    report.of_bound->free = 3 * gib;
    report.of_device->free = gib / 2;
    CHECK_THAT(text_of(report),
               ContainsSubstring("  full       the device: 512.00 MiB of it are "
                                 "left for 2.00 GiB, and 3.00 GiB of the bound\n"));
    CHECK(json_of(report).at("full") == "device");
    report.of_device->free = 3 * gib; // in pieces
    CHECK_THAT(text_of(report), !ContainsSubstring("  full "));
    CHECK(json_of(report).at("full") == "");
    report.request->of_host = true;
    report.of_device->free = 0;
    CHECK(json_of(report).at("full") == "");
}

TEST_CASE("a request above the bound is told of the bound, and the rest is told of the device") {
    MemoryReport report = usual();
    report.bound = "1.00 GiB of EMM_LIMIT's 1.00 GiB used";
    report.of_bound = report.of_driver = {0, gib};
    report.of_device = {0, 80 * gib};
    CHECK(has_hint(report, "the bound is 1.00 GiB in all: no plugin can give 2.00 GiB"));
    report.processes.reset();
    CHECK(remainder_of(report)->bytes == 19 * gib); // of the used memory of the device
}

TEST_CASE("the report names who asked, who holds, and what is neither") {
    const std::string text = text_of(usual());
    CHECK_THAT(text, ContainsSubstring("out of device memory on device 0: 2.00 GiB (2147483648 "
                                       "bytes) asked for by /opt/libtorch_cuda.so+0x12\n"));
    CHECK_THAT(text, ContainsSubstring("60.00 GiB in 1234 allocations"));
    CHECK_THAT(text, ContainsSubstring("cached       1.00 GiB kept by plugin pool"));
    CHECK_THAT(text, ContainsSubstring("50.00 GiB   83 %       1000 allocations  "
                                       "/opt/libc10_cuda.so\n"));
    CHECK_THAT(text, ContainsSubstring("process     10.00 GiB 8 other\n"));
    CHECK_THAT(text, !ContainsSubstring("62.00 GiB 7 python"));
    CHECK_THAT(text, ContainsSubstring("remainder    1.00 GiB contexts, modules, local memory"));
}

TEST_CASE("the same is told as JSON, and what is not known is null") {
    const nlohmann::json told = json_of(usual());
    CHECK(told.at("request").at("bytes") == 2 * gib);
    CHECK(told.at("plugin").at("live_bytes") == 60 * gib);
    CHECK(told.at("remainder").at("bytes") == gib);
    CHECK(told.at("tracked").at("libraries").at(0).at("bytes") == 50 * gib);
    CHECK(told.at("processes").size() == 2);
    const nlohmann::json empty = json_of(MemoryReport());
    for (const char *name : {"request", "driver", "processes", "remainder", "tracked"}) {
        INFO(name);
        CHECK(empty.at(name).is_null());
    }
}

TEST_CASE("the largest free block is told, and 0 of a plugin that has memory cached is no figure") {
    MemoryReport report = usual();
    CHECK_THAT(text_of(report), ContainsSubstring("  largest    256.00 MiB free in one piece"));
    CHECK(json_of(report).at("largest_free_block") == gib / 4);
    report.of_plugin->largest_free_block = 0;
    CHECK_THAT(text_of(report), ContainsSubstring("none, or not told by the plugin"));
    CHECK(json_of(report).at("largest_free_block").is_null());
    report.of_plugin->cached_bytes = 0;
    CHECK_THAT(text_of(report), ContainsSubstring("  largest           0 B free in one piece"));
    CHECK(json_of(report).at("largest_free_block") == 0);
    report.of_plugin.reset();
    CHECK_THAT(text_of(report), !ContainsSubstring("largest "));
    CHECK(json_of(report).at("largest_free_block").is_null());
}

TEST_CASE("the hint at a holder has the line of Python that asked for the most, if it is known") {
    MemoryReport report = usual();
    CHECK(has_hint(report, "/opt/libc10_cuda.so holds 50.00 GiB of what is live"));
    report.tracked->callers = {{"/opt/libc10_cuda.so+0x1 (f)", 9 * gib, 1}};
    CHECK_FALSE(has_hint(report, "the caller with the most of it"));
    report.tracked->callers = {{"/home/train.py:7 (step) < /home/train.py:9 (main)", 9 * gib, 1}};
    CHECK(has_hint(report,
                   "/opt/libc10_cuda.so holds 50.00 GiB of what is live; the caller with the most "
                   "of it, 9.00 GiB, is /home/train.py:7 (step) < /home/train.py:9 (main)"));
}

TEST_CASE("what is live, the remainder and the other processes are all that is used") {
    MemoryReport report = usual();
    CHECK(remainder_of(report)->bytes == 1 * gib);
    CHECK_FALSE(remainder_of(report)->includes_others);
    report.processes.reset(); // then they cannot be told apart
    CHECK(remainder_of(report)->bytes == 80 * gib - gib / 2 - 61 * gib);
    CHECK(remainder_of(report)->includes_others);
    report.of_driver->free = 80 * gib; // figures of different moments
    CHECK(remainder_of(report)->bytes == 0);
    report.of_driver.reset();
    CHECK_FALSE(remainder_of(report));
    report.of_plugin.reset();
    CHECK_FALSE(remainder_of(report));
}

TEST_CASE("what is spilled is told where there is any, and is not the device's") {
    MemoryReport report = usual();
    CHECK_THAT(text_of(report), !ContainsSubstring("spilled"));
    report.of_plugin->spilled_bytes = 2 * gib;
    CHECK_THAT(text_of(report), ContainsSubstring("spilled      2.00 GiB reserved, on the host"));
    CHECK(json_of(report).at("plugin").at("spilled_bytes") == 2 * gib);
    CHECK(remainder_of(report)->bytes == 3 * gib);
}

TEST_CASE("what libraries took from the driver itself is named, and is not in the remainder") {
    MemoryReport report = usual();
    report.tracked->of_driver = {{"/opt/xla_cuda_plugin.so", gib / 2, 3}};
    CHECK(remainder_of(report)->bytes == gib / 2);
    CHECK_THAT(text_of(report), ContainsSubstring("taken from the driver itself, by library:"));
    CHECK_THAT(text_of(report), ContainsSubstring("3 allocations  /opt/xla_cuda_plugin.so"));
    CHECK(json_of(report).at("tracked").at("of_driver").at(0).at("bytes") == gib / 2);
    CHECK(has_hint(report, "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"));
    CHECK_FALSE(has_hint(report, "expandable_segments"));
    report.tracked->of_driver = {{"/opt/libc10_cuda.so", gib / 2, 3}};
    CHECK(has_hint(report, "expandable_segments"));
}

TEST_CASE("a hint is given where the figures bear it out, and nowhere else") {
    MemoryReport report = usual();
    CHECK(has_hint(report, "torch.cuda.empty_cache()"));
    CHECK(has_hint(report, "other processes hold 10.00 GiB"));
    CHECK_FALSE(has_hint(report, "EMM_TRACK"));
    CHECK_FALSE(has_hint(report, "synchronize"));
    report.of_plugin->pending_bytes = 2 * gib;
    CHECK(has_hint(report, "synchronize"));
    report.tracked.reset();
    CHECK(has_hint(report, "EMM_TRACK=module"));
    report.processes->front().bytes = 75 * gib;
    CHECK(has_hint(report, "CUDA_MODULE_LOADING=LAZY"));
    report.request->bytes = 81 * gib;
    CHECK(hints_for(report).size() == 1);
    CHECK(has_hint(report, "the device has 80.00 GiB in all"));
}

TEST_CASE("the hint at a library's own cache names its command, if the library holds half of all") {
    MemoryReport report = usual();
    report.tracked->libraries = {{"/opt/cupy/core.so", 50 * gib, 9}, {"/opt/b.so", 50 * gib, 9}};
    CHECK(has_hint(report, "free_all_blocks()"));
    CHECK_FALSE(has_hint(report, "torch.cuda.empty_cache()"));
    report.tracked->libraries.push_back({"/opt/c.so", 1, 1});
    CHECK_FALSE(has_hint(report, "free_all_blocks()"));
}

TEST_CASE("no hint is given at other processes that hold less than what is asked for") {
    MemoryReport report = usual();
    report.request->bytes = 10 * gib + 1;
    CHECK_FALSE(has_hint(report, "other processes"));
    report.request->bytes = 10 * gib;
    CHECK(has_hint(report, "other processes hold 10.00 GiB"));
    report.request.reset(); // a report that was asked for
    CHECK_FALSE(has_hint(report, "other processes"));
}

TEST_CASE("neither the bound nor the device is full for host memory") {
    MemoryReport report = usual();
    report.of_bound = {0, 64 * gib};
    report.of_device = {0, 80 * gib};
    CHECK(full_of(report) == "bound");
    report.request->of_host = true;
    report.request->bytes = 100 * gib; // more than the device has
    CHECK(full_of(report).empty());
    CHECK_FALSE(has_hint(report, "no plugin can give"));
}

TEST_CASE("the remainder is not told where the plugin's or the device's figures are missing") {
    MemoryReport report = usual();
    report.of_plugin.reset();
    CHECK_FALSE(remainder_of(report));
    report = usual();
    report.processes.reset();
    report.tracked.reset();
    REQUIRE(remainder_of(report));
    CHECK(remainder_of(report)->includes_others);
    report.of_driver->free = report.of_driver->total + 1; // it cannot be; the driver may say it
    CHECK(remainder_of(report)->bytes == 0);
    report.of_driver.reset();
    CHECK_FALSE(remainder_of(report));
    CHECK_THAT(text_of(report), !ContainsSubstring("  remainder "));
}

TEST_CASE("of many other processes the first have a line each, and the rest is a number") {
    MemoryReport report = usual();
    report.tracked.reset();
    for (uint32_t id = 100; id < 150; ++id) {
        report.processes->push_back({id, "many", gib});
    }
    const std::string text = text_of(report);
    const std::string::size_type rest = text.find(" more processes\n");
    REQUIRE(rest != std::string::npos);
    size_t told = 0;
    for (uint32_t id = 100; id < 150; ++id) {
        told += text.find(std::to_string(id) + " many\n") != std::string::npos;
    }
    CHECK_THAT(text, ContainsSubstring("  and " + std::to_string(50 - told) + " more processes\n"));
    CHECK_THAT(text, ContainsSubstring("local memory, and what the program took from the driver "
                                       "itself\n"));
}

TEST_CASE(
    "memory in pieces is a hint where what is cached and what is free are enough together alone") {
    MemoryReport report = usual();
    report.plugin = "async";
    CHECK_FALSE(has_hint(report, "not in one piece")); // 1.5 GiB in all
    report.of_plugin->cached_bytes = 2 * gib;
    CHECK(has_hint(report, "2.50 GiB are cached or free, but not in one piece (the largest that is "
                           "cached has 256.00 MiB): a plugin that maps pages, as pool does"));
    report.of_plugin->largest_free_block = 0;
    CHECK(has_hint(report, "not in one piece: "));
    report.of_plugin->largest_free_block = 2 * gib; // then that is not why
    CHECK_FALSE(has_hint(report, "not in one piece"));
    report.of_plugin->largest_free_block = 0;
    report.of_driver->free = 2 * gib; // nor is it then
    CHECK_FALSE(has_hint(report, "not in one piece"));
    report.of_driver->free = gib / 2;
    report.of_plugin->pending_bytes = 2 * gib;
    CHECK_FALSE(has_hint(report, "not in one piece"));
}

TEST_CASE("no hint tells a plugin of what it does already, nor one without a cache of pieces") {
    MemoryReport report = usual();
    report.of_plugin->cached_bytes = 2 * gib;
    report.spec = "pool:max=70GiB";
    CHECK_FALSE(has_hint(report, "not in one piece"));
    report.spec = "pool:growth=segment,max=70GiB";
    CHECK(has_hint(report, "pool without growth=segment maps pages"));
    report.spec = "pool:ipc=dedicated";
    CHECK(has_hint(report, "pool without ipc=dedicated maps pages"));
    report.plugin = report.spec = "passthrough";
    report.of_plugin->cached_bytes = 0;
    report.of_driver->free = 3 * gib;
    CHECK_FALSE(has_hint(report, "pool"));
}

TEST_CASE("names that would do harm come out harmless, in lines and in JSON") {
    const std::string long_name(1'000'000, 'x');
    for (const std::string &name :
         {std::string("\x1b[2J\x1b]0;owned\x07"), std::string("a\nFAKE: 0 B\r\n"),
          std::string("<script>alert(1)</script>"), std::string("a,b\"c\\"),
          std::string("\xff\xfe"), std::string("a\0b", 3),
          std::string("\xe2\x80\xae"
                      "gpj.exe"),
          long_name}) {
        MemoryReport report = usual();
        report.request->caller = name;
        report.plugin = name;
        report.no_processes = name;
        report.processes->push_back({9, name, 5});
        report.tracked->libraries.insert(report.tracked->libraries.begin(), {name, 55 * gib, 1});
        report.tracked->callers.push_back({name, 55 * gib, 1});
        for (const std::string &line : report_lines(report)) {
            CHECK(line.size() < 1000);
            for (const char c : line) {
                CHECK((static_cast<unsigned char>(c) >= 32 && c != 127));
            }
            CHECK(line.find("\xe2\x80\xae") == std::string::npos);
        }
        const std::string json = report_json(report);
        CHECK(nlohmann::json::accept(json));
        CHECK(json.find('\n') == std::string::npos);
        CHECK(json.find('\x1b') == std::string::npos);
        CHECK(json.size() < 60'000);
    }
}

TEST_CASE("the largest holders come first, those of one name are one, and the rest is summed up") {
    std::vector<MemoryHolder> all = {
        {"b", 5, 1}, {"a", 3, 1}, {"b", 5, 1}, {"c", 9, 2}, {"d", 1, 1}};
    const auto two = largest_holders(all, 2);
    REQUIRE(two.size() == 3);
    CHECK((two[0].name == "b" && two[0].bytes == 10 && two[0].count == 2));
    CHECK(two[1].name == "c");
    CHECK((two[2].name == "2 others" && two[2].bytes == 4 && two[2].count == 2));
    CHECK(largest_holders(all, 4).size() == 4);
    CHECK(largest_holders({}, 4).empty());
}

TEST_CASE("figures of a sample are said to be estimates, and lost records are told") {
    MemoryReport report = usual();
    report.tracked->sample = 100;
    report.tracked->lost = 3;
    CHECK_THAT(text_of(report), ContainsSubstring("estimated from one allocation in 100"));
    CHECK_THAT(text_of(report), ContainsSubstring("no records of 3 allocations"));
}

TEST_CASE("leaks are told by caller, and none is no report") {
    MemoryReport::Tracked tracked;
    CHECK(leak_lines(tracked, "at the end").empty());
    tracked.callers = {{"train.py:7 (step)", 3 * gib, 4}};
    const auto lines = leak_lines(tracked, "at the end");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "3.00 GiB still allocated at the end:");
    CHECK_THAT(lines[1], ContainsSubstring("4 allocations  train.py:7 (step)"));
}

TEST_CASE("of a long way of calls the innermost and the outermost stay, of a long path its end") {
    MemoryReport::Tracked tracked;
    const std::string parameters(1000, 'x');
    tracked.callers = {{"/opt/train+0x12 (alloc()+0x2) < run(" + parameters + ") < main", gib, 1},
                       {"/opt/" + parameters + "/libmodel.so", gib, 1}};
    const auto lines = leak_lines(tracked, "at the end");
    REQUIRE(lines.size() == 3);
    CHECK_THAT(lines[1], ContainsSubstring("allocation   /opt/train+0x12 (alloc()+0x2) < run(x") &&
                             ContainsSubstring("x) < main"));
    CHECK_THAT(lines[2], ContainsSubstring("xx/libmodel.so"));
}

TEST_CASE("bytes are written in the unit that fits") {
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(1023) == "1023 B");
    CHECK(bytes_text(1536) == "1.50 KiB");
    CHECK(bytes_text(UINT64_MAX) == "16.00 EiB");
}

TEST_CASE("a plugin that is at its limit is what the report names, and not the device") {
    MemoryReport report = usual();
    report.plugin = "async";
    report.of_plugin->cached_bytes = 2 * gib;
    report.of_pool = MemoryReport::Pool{"", gib, 61 * gib};
    CHECK_THAT(text_of(report), ContainsSubstring("limit       61.00 GiB by the plugin, of which "
                                                  "1.00 GiB are free\n"));
    CHECK(has_hint(report, "the plugin's limit is 61.00 GiB, of which 1.00 GiB are free; a larger "
                           "one could have 512.00 MiB more of the driver"));
    report.of_driver->free = 0;
    CHECK_FALSE(has_hint(report, "a larger one"));
    report.of_driver->free = gib / 2;
    CHECK_FALSE(has_hint(report, "not in one piece"));
    CHECK(json_of(report).at("limit").at("total") == 61 * gib);

    report.of_pool->total = report.of_driver->total; // no limit
    CHECK_THAT(text_of(report), !ContainsSubstring("limit "));
    CHECK(has_hint(report, "not in one piece"));
    CHECK(json_of(report).at("limit").is_null());
}

TEST_CASE("a limit that is not reached is not why a full device has no more") {
    MemoryReport report = usual();
    report.of_plugin->cached_bytes = 0;
    report.of_driver->free = 0;
    report.of_pool = MemoryReport::Pool{"", 0, 8 * gib};
    CHECK_THAT(text_of(report),
               ContainsSubstring("limit        8.00 GiB by the plugin, which is not reached\n"));
    CHECK_FALSE(has_hint(report, "limit"));
}

TEST_CASE("a limit that was lowered below what is held is exceeded") {
    MemoryReport report = usual();
    report.request.reset();
    report.of_pool = MemoryReport::Pool{"kv", 0, 8 * gib, 9 * gib};
    CHECK_THAT(text_of(report), ContainsSubstring("limit        8.00 GiB by the plugin in pool kv, "
                                                  "exceeded by 1.00 GiB since it was lowered\n"));
}

TEST_CASE("a pool at its limit is named, and so are its holders") {
    MemoryReport report = usual();
    report.of_pool = MemoryReport::Pool{"kv", gib, 2 * gib, gib};
    report.tracked->of_pool = true;
    const std::string text = text_of(report);
    CHECK_THAT(text, ContainsSubstring("on device 0 in pool kv: "));
    CHECK_THAT(text, ContainsSubstring("by the plugin in pool kv, of which 1.00 GiB are free\n"));
    CHECK_THAT(text, ContainsSubstring("live in pool kv by library:\n"));
    CHECK(
        has_hint(report, "the plugin's limit in pool kv is 2.00 GiB, of which 1.00 GiB are free"));
    CHECK(has_hint(report, "of what is live in pool kv"));
    CHECK(json_of(report).at("request").at("pool") == "kv");
    report.of_pool->name = "";
    CHECK_THAT(text_of(report), ContainsSubstring("live in the default pool by library:\n"));
}
