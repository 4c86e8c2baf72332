#pragma once

#include "clock.h"

#include <cuda.h>
#include <map>
#include <optional>
#include <vector>

namespace simcuda {

// One use of memory by one piece of work.
struct Access {
    uint32_t line = 0;
    uint64_t time = 0; // 0: none
    const char *call = "";
    CUstream stream = nullptr;
    uint32_t thread = 0;
    bool write = false;
};

// Who used which bytes last: the latest write, and the reads since. Kept per physical byte, so that
// memory which is seen at two addresses, or mapped anew, is the same memory.
class Shadow {
public:
    // Notes the access. The answer is an earlier one that it conflicts with and is not ordered
    // after, if there is such.
    std::optional<Access> use(uint64_t start, uint64_t size, const Access &access,
                              const Clock &clock, const Host &host);

    // An access that the host has not seen complete.
    std::optional<Access> unseen(uint64_t start, uint64_t size, const Host &host) const;

    void clear(uint64_t start, uint64_t size);

private:
    struct Cell {
        uint64_t end = 0;
        Access write;
        std::vector<Access> reads;
    };
    using Cells = std::map<uint64_t, Cell>;
    void split(uint64_t at);
    void fill_gaps(uint64_t start, uint64_t end);

    Cells cells_;
};

} // namespace simcuda
