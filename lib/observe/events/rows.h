#pragma once

#include "observe/events/module.h"
#include "observe/events/record.h"

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace emm::observe {

// Return addresses as readable texts: "/usr/bin/train+0x1234 (step(int)+0x42)", followed by the
// calls of Python.
class Locations {
public:
    void add(Module module);
    void add(std::string python_calls); // gets the next number

    // Ready for a CSV field. Valid until the next call.
    const std::string &of(uint64_t caller, uint32_t python);

private:
    std::string make(uint64_t caller) const;

    std::vector<Module> modules_;
    std::vector<std::string> python_calls_;
    std::unordered_map<uint64_t, std::string> known_;
    std::map<std::pair<uint64_t, uint32_t>, std::string> known_of_python_;
};

// Turns events, in the order of their moments, into rows of the log: the columns of the example in
// NBEP 7, and the context. Counts live allocations, and supplies the sizes that frees leave out.
class Rows {
public:
    static constexpr std::string_view header =
        "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,"
        "Start,End,Elapsed,Location,Context\n";

    Rows(uint64_t first_tick, double ns_per_tick) : first_(first_tick), scale_(ns_per_tick) {}

    Locations &locations() { return locations_; }
    void append(const EventRecord &record, std::string &text);

    // Reads a row that was written before, to know the live memory and the free memory.
    void resume(std::string_view row);

private:
    struct Device {
        uint64_t free_at_first = 0, total = 0; // as the driver reported
        uint64_t used = 0;                     // device memory that emm has given out since
        uint64_t allocations = 0;              // live, of every kind
    };
    struct Live {
        uint64_t size;
        uint32_t context;
        uint16_t device;
        EventType type;
    };

    uint64_t account(const EventRecord &record);
    void take(const EventRecord &record);
    void give_back(std::unordered_map<uint64_t, Live>::iterator block);
    void drop_all(const EventRecord &record);
    uint64_t nanoseconds(uint64_t ticks) const;

    const uint64_t first_;
    const double scale_;
    Locations locations_;
    std::unordered_map<uint16_t, Device> devices_;
    std::unordered_map<uint64_t, Live> live_; // by address and type
};

} // namespace emm::observe
