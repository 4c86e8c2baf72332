#pragma once

#include "observe/callers/stacks.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace emm::observe {

// Between the parts of a Location; in none of them.
inline constexpr char location_separator = '\t';

// The calls of Python in a stack, the innermost first, and its tags:
// "train.py:12 (step)\ttrain.py:40 (main)\ttag serve/decode". "" if there are none.
std::string python_calls_of(const Stack &stack);

// Numbers such texts. A record has room for a number.
class PythonCalls {
public:
    // `keep` makes a new text known to who reads the records, and says whether it has.
    explicit PythonCalls(std::function<bool(const std::string &)> keep) : keep_(std::move(keep)) {}

    // From 1 on, in the order in which texts were kept; 0: there are no calls, or no more room.
    uint32_t number_of(const Stack &stack);

private:
    const std::function<bool(const std::string &)> keep_;
    std::mutex mutex_; // over the rest
    std::unordered_map<const Stack *, uint32_t> stacks_;
    std::unordered_map<std::string, uint32_t> texts_;
    uint32_t kept_ = 0;
};

// One line for the spool, and back. Which lines are such, their beginning tells.
std::string to_line(const std::string &calls);
bool take_python_calls(std::string_view &text, std::string &ret_calls);

} // namespace emm::observe
