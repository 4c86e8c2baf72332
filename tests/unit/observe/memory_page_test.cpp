#include "observe/memory_page.h"

#include "catch.h"

using namespace emm::observe;

namespace {

constexpr uint64_t gib = uint64_t(1) << 30;

MemoryReport failed() {
    MemoryReport report;
    report.request = MemoryReport::Request{2 * gib, false, "/opt/train.py:7 (step)"};
    report.plugin = "pool";
    report.spec = "pool:max=64GiB";
    report.of_plugin = MemoryReport::Plugin{60 * gib, 1234, gib, 0, 62 * gib, 4096, gib / 4, 0};
    report.of_driver = MemoryReport::Driver{gib / 2, 80 * gib};
    report.processes = {{7, "python", 63 * gib}, {8, "other", 16 * gib}};
    report.own_process = 7;
    report.bound = "64.00 GiB of EMM_LIMIT's 64.00 GiB used: managers 62.00 GiB";
    report.tracked =
        MemoryReport::Tracked{1,
                              0,
                              {{"/opt/libc10_cuda.so", 60 * gib, 1234}},
                              {{"<b>&\"\033[2J", 45 * gib, 1000}, {"b", 15 * gib, 234}},
                              {}};
    return report;
}

const PageSubject subject = {"python3", "python3 train.py", 7, "2026-11-27 00:00:00 UTC"};

} // namespace

TEST_CASE("a failure's page tells who holds what of the device, the bound and the hints") {
    const std::string page = report_page(failed(), subject);
    for (const char *part :
         {"<h1>out of device memory on device 0: 2.00 GiB (2147483648 bytes) asked for by "
          "/opt/train.py:7 (step)</h1>",
          "<td>python3 train.py (process 7)</td>", "<td>pool:max=64GiB</td>",
          "<td>64.00 GiB of EMM_LIMIT's", ">60.00 GiB</td><td class=\"number\">75 %</td>",
          "<td>other<br><small>another process, 8</small></td>",
          ">512.00 MiB</td><td class=\"number\">1 %</td>", "<h2>What is live, by caller</h2>",
          "<td class=\"number\">75 %</td><td class=\"bar\"><meter max=\"100\" value=\"75.0\">",
          "<li>other processes hold 16.00 GiB of the device</li>",
          "  live        60.00 GiB in 1234 allocations\n"}) {
        CHECK_THAT(page, ContainsSubstring(part));
    }
}

TEST_CASE("under a bound the shares are the bound's, and the device has a line") {
    MemoryReport report = failed();
    report.of_bound = MemoryReport::Driver{gib / 2, 64 * gib};
    report.of_device = MemoryReport::Driver{720 * gib, 800 * gib};
    report.of_plugin->live_bytes = 48 * gib;
    report.of_plugin->reserved_bytes = 50 * gib;
    const std::string page = report_page(report, subject);
    for (const char *part :
         {"<h2>Where the bound's memory is</h2>", ">48.00 GiB</td><td class=\"number\">75 %</td>",
          ">13.50 GiB</td><td class=\"number\">21 %</td>",
          ">512.00 MiB</td><td class=\"number\">1 %</td>", "of 64.00 GiB</small>",
          "<th>Device</th><td>720.00 GiB of 800.00 GiB free</td>"}) {
        CHECK_THAT(page, ContainsSubstring(part));
    }
    for (const char *part : {"Where the device", "90 %", "another process"}) {
        CAPTURE(part);
        CHECK(page.find(part) == std::string::npos);
    }
}

TEST_CASE("names are text on the page, which loads and runs nothing") {
    const std::string page = report_page(failed(), subject);
    CHECK_THAT(page, ContainsSubstring("<td>&lt;b&gt;&amp;&quot;?[2J<br>"));
    CHECK(page.find("<b>") == std::string::npos);
    CHECK(page.find(">0 B<") == std::string::npos); // rows of nothing
    CHECK(page.find("<script") == std::string::npos);
    CHECK(page.find("http:") == std::string::npos);
    CHECK_THAT(page, ContainsSubstring("default-src 'none'"));
}

TEST_CASE("what is not known is not on the page") {
    MemoryReport report;
    report.request = MemoryReport::Request{1, true, ""};
    const std::string page = report_page(report, {"a", "", 1, "now"});
    CHECK_THAT(page, ContainsSubstring("<td>a (process 1)</td>"));
    for (const char *part : {"Bound", "by caller", "Where the device"}) {
        CHECK(page.find(part) == std::string::npos);
    }
}

TEST_CASE("the folder of pages is behind page:") {
    CHECK(page_folder("page:/var/tmp") == "/var/tmp");
    CHECK(page_folder("page:") == "");
    CHECK(page_folder("on") == "");
}
