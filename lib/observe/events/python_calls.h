#pragma once

#include "observe/callers/stacks.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace emm::observe {

// Separates the parts of a Location; no part contains it.
inline constexpr char location_separator = '\t';

// The Python calls of a stack, the innermost first, and its tags: "train.py:12 (step)\ttrain.py:40
// (main)\ttag serve/decode". "" if there are none.
std::string python_calls_of(const Stack &stack);

// Numbers such texts, because a record has room for a number only.
class PythonCalls {
public:
    // `keep` passes a new text on to the reader of the records, and returns whether it could.
    explicit PythonCalls(std::function<bool(const std::string &)> keep) : keep_(std::move(keep)) {}

    // Numbers from 1 on, in the order in which texts were kept; 0: no calls, or no more room.
    uint32_t number_of(const Stack &stack);

private:
    const std::function<bool(const std::string &)> keep_;
    std::mutex mutex_; // guards the members below
    std::unordered_map<const Stack *, uint32_t> stacks_;
    std::unordered_map<std::string, uint32_t> texts_;
    uint32_t kept_ = 0;
};

// A text as one line for the spool, and back. The beginning of a line tells its kind.
std::string to_line(const std::string &calls);
bool take_python_calls(std::string_view &text, std::string &ret_calls);

} // namespace emm::observe
