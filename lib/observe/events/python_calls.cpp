#include "observe/events/python_calls.h"

#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>

namespace emm::observe {
namespace {

constexpr size_t most_calls = 16, most_call_bytes = 2048;
constexpr std::string_view mark = "python ";

} // namespace

std::string python_calls_of(const Stack &stack) {
    std::string text;
    size_t count = 0;
    for (const emm_frame &frame : stack.frames) {
        if (!frame.function || count == most_calls) {
            continue; // compiled code
        }
        const std::string call = one_line(
            fmt::format("{}:{} ({})", bounded(frame.module), frame.line, bounded(frame.function)));
        if (text.size() + call.size() > most_call_bytes && count > 0) {
            break;
        }
        text += (count++ == 0 ? "" : std::string(1, location_separator)) + call;
    }
    if (stack.tag) {
        text +=
            (count == 0 ? "tag " : std::string(1, location_separator) + "tag ") + stack.tag->path;
    }
    return text;
}

uint32_t PythonCalls::number_of(const Stack &stack) {
    const std::lock_guard lock(mutex_);
    const auto known = stacks_.find(&stack);
    if (known != stacks_.end()) {
        return known->second;
    }
    const std::string text = python_calls_of(stack);
    uint32_t number = 0;
    if (!text.empty()) {
        const auto [found, is_new] = texts_.try_emplace(text, 0);
        if (is_new && keep_(text)) {
            found->second = ++kept_;
        }
        number = found->second;
    }
    return stacks_[&stack] = number;
}

std::string to_line(const std::string &calls) {
    return std::string(mark) + calls + "\n";
}

bool take_python_calls(std::string_view &text, std::string &ret_calls) {
    if (text.substr(0, mark.size()) != mark) {
        return false;
    }
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ret_calls = line.substr(mark.size());
    return true;
}

} // namespace emm::observe
