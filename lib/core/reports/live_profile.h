#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Live memory, summed by caller. `emm export --pid` makes a profile of it.
namespace emm::core {

struct LiveProfile {
    // A line of a Python function; with line 0, a function of a library, or a place in it.
    struct Frame {
        std::string file, function;
        uint32_t line = 0;
    };
    struct Caller {
        int32_t device = 0;
        uint32_t memory = 0; // EMM_EVENT_DEVICE and so on
        uint64_t bytes = 0, count = 0;
        std::vector<uint32_t> frames; // the innermost first, as indices into the frames below
        std::string tag;              // "serve/decode"; "": none
    };
    bool is_tracked = false; // false: EMM_TRACK is not set, and the profile is empty
    uint32_t sample = 1;     // bytes and counts are estimates from one of so many
    uint64_t lost = 0;       // records that there was no memory for
    std::vector<Frame> frames;
    std::vector<Caller> callers; // the largest first
};

// Reads symbols from files, for at most so many places; the others keep module and offset. Throws
// std::bad_alloc.
inline constexpr size_t most_symbols = 256;
LiveProfile live_profile();

} // namespace emm::core
