#include "observe/events/rows.h"

#include "catch.h"

using namespace emm::observe;

namespace {

EventRecord record_of(EventType type, uint64_t address, uint64_t size, uint32_t context) {
    EventRecord record = {};
    record.type = type;
    record.address = address;
    record.size = size;
    record.context = context;
    return record;
}

std::string row_of(Rows &rows, const EventRecord &record) {
    std::string text;
    rows.append(record, text);
    return text;
}

// Whether the row has these figures: free memory, its total, and live memory.
bool tells(const std::string &row, const std::string &figures) {
    return row.find("," + figures + ",") != std::string::npos;
}

} // namespace

TEST_CASE("a row ends with the number of its context") {
    Rows rows(0, 1);
    CHECK(row_of(rows, record_of(EventType::alloc, 0x10, 5, 7)).ends_with(",7\n"));
}

TEST_CASE("a log that is completed goes on with what is live in each context") {
    Rows before(0, 1);
    row_of(before, record_of(EventType::context, 1000, 2000, 1));
    const std::string first = row_of(before, record_of(EventType::alloc, 0x10, 100, 1));
    const std::string second = row_of(before, record_of(EventType::alloc, 0x20, 50, 2));
    REQUIRE(tells(second, "850,2000,2"));
    Rows rows(0, 1);
    for (const std::string &row : {first, second}) {
        rows.resume(std::string_view(row).substr(0, row.size() - 1));
    }
    CHECK(tells(row_of(rows, record_of(EventType::retire, 0, 0, 2)), "900,2000,1"));
    CHECK(tells(row_of(rows, record_of(EventType::reset, 0, 0, 1)), "1000,2000,0"));
}

TEST_CASE("a row names a pool that has a number of its own, whatever its name is") {
    Rows rows(0, 1);
    row_of(rows, record_of(EventType::context, 1000, 2000, 1));
    EventRecord record = {};
    record.context = first_pool_number;
    set_pool(record, "kv-cache", 1);
    CHECK(pool_name(record) == "kv-cache");
    CHECK(row_of(rows, record) == "Pool,0,0x0,-1,0,1000,2000,0,0.000000000,0.000000000,0.000000000,"
                                  "kv-cache (context 1),2147483648\n");
    set_pool(record, std::string(40, 'a'), 1);
    CHECK(pool_name(record) == std::string(31, 'a'));
    set_pool(record, "a,b\n\x1b", 1); // of a damaged spool
    CHECK(row_of(rows, record).find("\"a,b") != std::string::npos);
    CHECK(row_of(rows, record).find('\x1b') == std::string::npos);
}

TEST_CASE("a reset of a pool drops what is live there, and leaves the CUDA context's own") {
    Rows rows(0, 1);
    row_of(rows, record_of(EventType::context, 1000, 2000, 1));
    row_of(rows, record_of(EventType::alloc, 0x10, 100, 1));
    row_of(rows, record_of(EventType::alloc, 0x20, 50, first_pool_number));
    CHECK(tells(row_of(rows, record_of(EventType::reset, 0, 0, first_pool_number)), "900,2000,1"));
}
