#pragma once

#include <string>
#include <string_view>

namespace emm::tool::top {

inline constexpr size_t longest_request = 8192; // bytes, up to the empty line

// What is to be done about the bytes that a client has sent so far.
enum class Verdict {
    incomplete,   // more is needed
    metrics,      // GET /metrics
    metrics_head, // the same without the text
    not_found,
    not_allowed, // another method
    malformed,
    too_long,
};
Verdict judge(std::string_view received);

// The whole response; `body` is for the metrics.
std::string response(Verdict verdict, std::string_view body);

} // namespace emm::tool::top
