#include "catch.h"
#include "problem.h"
#include "trace/builder.h"
#include "trace/reader.h"

#include <cstdio>
#include <fstream>
#include <unistd.h>

using namespace emm::tool;

namespace {

const std::string header = "time,thread,stream,op,id,size\n";

std::string refusal(const std::string &text) {
    try {
        parse_trace(text, "some.csv");
    } catch (const Failure &failure) {
        CHECK(failure.problem().path == "some.csv");
        CHECK(failure.problem().stage == "trace");
        return failure.what();
    }
    return "accepted";
}

struct File {
    explicit File(const std::string &bytes) {
        char name[] = "/tmp/emm-trace-XXXXXX";
        close(mkstemp(name));
        path = name;
        std::ofstream(path, std::ios::binary) << bytes;
    }
    ~File() { std::remove(path.c_str()); }
    std::string path;
};

} // namespace

TEST_CASE("a trace is read with its threads, streams and blocks numbered from 0") {
    const Trace trace = parse_trace(header + "0,7,3,alloc,40,100\n"
                                             "1,7,3,mark,1,0\n"
                                             "1,9,5,alloc,41,50\r\n"
                                             "2,9,3,free,40,100\n"
                                             "3,9,3,alloc,42,70\n",
                                    "t");
    REQUIRE(trace.events.size() == 5);
    CHECK(trace.calls() == 4);
    CHECK(trace.threads == 2);
    CHECK(trace.streams == 2);
    CHECK(trace.blocks == 3);
    CHECK(trace.peak_live_bytes == 150);
    CHECK(trace.events[3].op == Op::free);
    CHECK(trace.events[3].thread == 1);
    CHECK(trace.events[3].stream == 0);
    CHECK(trace.events[3].block == 0);
}

TEST_CASE("an event keeps the time since the one before it, an hour at most") {
    const Trace trace = parse_trace(header + "500,0,0,alloc,1,1\n"
                                             "750,0,0,mark,1,0\n"
                                             "750,0,0,alloc,2,1\n"
                                             "9000000750,0,0,free,2,1\n",
                                    "t");
    const std::vector<uint32_t> gaps = {0, 250, 0, 3600000000};
    for (size_t i = 0; i < gaps.size(); i++) {
        CHECK(trace.events[i].gap == gaps[i]);
    }
}

TEST_CASE("a section of deferred clean-up that never ends is kept open") {
    CHECK(parse_trace(header + "0,0,0,defer_begin,-1,0\n0,0,0,alloc,1,1", "t").open_sections == 1);
}

TEST_CASE("each refusal names the file, the line, what was expected and what was found") {
    CHECK(refusal("time,op\n") ==
          "some.csv, line 1: expected the header "
          "time,thread,stream,op,id,size or that of an event log, found 'time,op'");
    CHECK(refusal("") == "some.csv, line 1: expected the header time,thread,stream,op,id,size or "
                         "that of an event log, found ''");
    CHECK(refusal(header) == "some.csv, line 1: expected at least one event, found none");
    CHECK(refusal(header + "0,0,0,alloc,1\n") ==
          "some.csv, line 2: expected 6 fields, time,thread,stream,op,id,size, found 5 in "
          "'0,0,0,alloc,1'");
    CHECK(refusal(header + "0,0,0,alloc,1,9,9\n").find("found 7 in") != std::string::npos);
    CHECK(refusal(header + "0,0,0,alloc,1,12x\n") ==
          "some.csv, line 2: expected a whole number for size, found '12x'");
    CHECK(refusal(header + "0,-1,0,alloc,1,1\n") ==
          "some.csv, line 2: expected a whole number for thread, found '-1'");
    CHECK(refusal(header + "0,0,0,move,1,1\n") ==
          "some.csv, line 2: expected alloc, free, mark, defer_begin or defer_end, found 'move'");
}

TEST_CASE("what no program could have done is refused") {
    const std::string one = header + "5,0,0,alloc,1,9\n";
    CHECK(refusal(one + "4,0,0,alloc,2,9\n") ==
          "some.csv, line 3: expected a time that never decreases, found 4 after 5");
    CHECK(refusal(one + "5,0,0,alloc,1,9\n") ==
          "some.csv, line 3: expected an id that was never used before, found id 1 again");
    CHECK(refusal(one + "5,0,0,alloc,2,0\n") ==
          "some.csv, line 3: expected an allocation of at least one byte, found size 0 for id 2");
    CHECK(refusal(one + "5,0,0,free,2,9\n") == "some.csv, line 3: expected the id of a live block, "
                                               "found a free of id 2, never allocated");
    CHECK(refusal(one + "5,0,0,free,1,9\n6,0,0,free,1,9\n") ==
          "some.csv, line 4: expected the id of a live block, found a free of id 1, freed before");
    CHECK(refusal(one + "5,0,0,free,1,8\n") ==
          "some.csv, line 3: expected the size of the allocation, 9, found 8 for id 1");
    CHECK(refusal(one + "5,0,0,defer_end,-1,0\n") ==
          "some.csv, line 3: expected defer_begin before its defer_end, found defer_end alone");
    const std::string half = ",9223372036854775808\n";
    CHECK(refusal(std::string(header) + "0,0,0,alloc,1" + half + "0,0,0,alloc,2" + half) ==
          "some.csv, line 3: expected live blocks of less than 2^64 bytes, found more");
}

TEST_CASE("more threads than a machine could run are refused") {
    std::string text = header;
    for (int i = 0; i < 1025; i++) {
        text += "0," + std::to_string(i) + ",0,alloc," + std::to_string(i) + ",1\n";
    }
    CHECK(refusal(text) == "some.csv, line 1026: expected at most 1024 threads, found one more");
}

TEST_CASE("an event log is read by its addresses, and what is not device memory is a mark") {
    const std::string log =
        "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
        "Start,End,Elapsed,Location\n";
    const auto row = [](const std::string &begin) { return begin + ",9,9,1,0.1,0.2,0.1,a+0x1\n"; };
    const Trace trace = parse_trace(
        log + row("Alloc,0,0x10,0,100") + row("Alloc,0,0x20,0x7f00,50") +
            row("Free,0,0x10,-1,100") + "Alloc,0,0x10,0,7,9,9,1,0.1,0.2,0.1,\"x (f(a, b)+0x1)\"\n" +
            row("Alloc Failure,0,0x0,0,999") + row("Pin,0,0x30,-1,10") + row("Free,0,0x99,0,0") +
            row("Defer End,0,0x0,-1,0") + row("Reset,0,0x0,-1,0"),
        "t");
    CHECK(trace.calls() == 6); // two of them because of the reset
    CHECK(trace.drops.by_reset == 2);
    CHECK(trace.drops.with_context == 0);
    CHECK(trace.blocks == 3);
    CHECK(trace.threads == 1);
    CHECK(trace.streams == 3);
    CHECK(trace.peak_live_bytes == 150);
    CHECK(refusal(log + row("Alloc,0,0x10,0,1") + row("Alloc,0,0x10,0,1")) ==
          "some.csv, line 3: expected an address that is not in use, found a second allocation at "
          "0x10");
    CHECK(refusal(log + "Alloc,0,0x10\n") ==
          "some.csv, line 2: expected the 12 fields of an event log, or 13, found 3");
    CHECK(refusal(log + row("Alloc,0,ten,0,1")) ==
          "some.csv, line 2: expected a number for Address, found 'ten'");
}

TEST_CASE("an event log's times are those at which its calls began, in order") {
    const auto row = [](const std::string &begin, const std::string &start) {
        return begin + ",9,9,1," + start + ",0.9,0.1,a+0x1\n";
    };
    const std::string log =
        "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
        "Start,End,Elapsed,Location\n";
    const Trace trace = parse_trace(
        log + row("Alloc,0,0x10,0,1", "0.5") + row("Alloc,0,0x20,0,1", "0.500250") +
            row("Alloc Failure,0,0x0,0,9", "0.500249999") + row("Free,0,0x10,0,1", "1.500250999"),
        "t");
    CHECK(trace.events[1].gap == 250);
    CHECK(trace.events[2].gap == 0);
    CHECK(trace.events[3].gap == 1000000);
    CHECK(refusal(log + row("Alloc,0,0x10,0,1", "soon")) ==
          "some.csv, line 2: expected a number for Start, found 'soon'");
}

TEST_CASE("the end of a context takes its own blocks, and none of another one on the device") {
    const auto row = [](const std::string &begin, int context) {
        return begin + ",9,9,1,0.1,0.2,0.1,\"f(a, b)+0x1\"," + std::to_string(context) + "\n";
    };
    const Trace trace = parse_trace(
        "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
        "Start,End,Elapsed,Location,Context\n" +
            row("Alloc,0,0x10,0,100", 1) + row("Alloc,0,0x20,0,50", 2) +
            row("Retire,0,0x0,-1,0", 2) + row("Alloc,0,0x20,0,70", 1) + row("Reset,0,0x0,-1,0", 1),
        "t");
    CHECK(trace.peak_live_bytes == 170);
    CHECK(trace.drops.with_context == 1);
    CHECK(trace.drops.by_reset == 2);
}

TEST_CASE("a file in gzip format is unpacked, whatever it is called") {
    const Trace trace = read_trace(TRACES "/train_gpt.csv.gz");
    CHECK(trace.threads == 2);
    CHECK(trace.calls() > 1000);
}

TEST_CASE("a gzip file that was cut short is refused") {
    std::ifstream whole(TRACES "/train_gpt.csv.gz", std::ios::binary);
    std::string bytes(5000, '\0');
    whole.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const File cut(bytes);
    CHECK_THROWS_WITH(read_trace(cut.path),
                      cut.path + ": gzip cannot unpack it: it is damaged or incomplete");
}

TEST_CASE("a file that is not there is refused by its name") {
    CHECK_THROWS_WITH(read_trace("/nowhere/t.csv"),
                      "cannot open /nowhere/t.csv: No such file or directory");
}
