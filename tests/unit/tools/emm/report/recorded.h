#pragma once

#include "report/history.h"

#include <string>

namespace emm::tool {

// A recording in the making, of device 0 by default. Times are nanoseconds.
struct Script {
    Recorded recorded;
    HistoryBuilder builder{recorded};

    Script &alloc(uint64_t key, uint64_t time, uint64_t size, const std::string &caller = "",
                  uint64_t address = 0, uint64_t stream = 0) {
        Allocation block;
        block.begin = time;
        block.size = size;
        block.address = address;
        block.site = recorded.sites.number_of(caller);
        builder.allocated(key, 0, Memory::device, stream, 0, block);
        return *this;
    }
    Script &free(uint64_t key, uint64_t time, uint64_t stream = 0) {
        builder.freed(key, time, stream);
        return *this;
    }
    Script &drop(uint64_t key, uint64_t time, Drop how) {
        builder.dropped(key, time, how);
        return *this;
    }
    const History &history() const { return recorded.histories.front(); }
};

} // namespace emm::tool
