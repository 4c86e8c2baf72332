#pragma once

#include "json.h"
#include "report/callers.h"
#include "report/history.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool {

// Numbers as the page's script reads them: seven bits a byte, the lowest first, and the upper bit
// if more follow; all of it in base64. A column of equal numbers has one number.
class Column {
public:
    void add(uint64_t number);
    std::string text() const;

private:
    std::vector<uint8_t> bytes_;
    uint64_t first_ = 0;
    size_t first_bytes_ = 0;
    bool is_constant_ = true;
};

// The blocks of a history, a column for each property, in the order of their allocations; the
// largest blocks if there are more than `most`. The page's script computes all other figures from
// them.
Json block_table_json(const History &history, const std::vector<std::string> &pools, bool is_log,
                      size_t most);

// The call sites by number: the frames of each, the innermost first, with its caller and library.
// Texts have numbers of their own.
Json calls_json(const CallSites &sites, const Callers &callers);

} // namespace emm::tool
