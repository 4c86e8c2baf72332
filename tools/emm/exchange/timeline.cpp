#include "exchange/timeline.h"

#include "observe/callers/python_frames.h"
#include "print.h"
#include "trace/event_log.h"
#include "trace/file.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace emm::tool {
namespace {

// The call of a kind of memory is at twice the kind's number, and its free is behind it.
constexpr std::array<std::string_view, 8> call_names = {
    "Alloc", "Free", "Alloc Host", "Free Host", "Pin", "Unpin", "Alloc Managed", "Free Managed"};

uint64_t key_of(uint64_t address, Memory memory) {
    return address << 2 | static_cast<uint64_t>(memory);
}

size_t after_digits(const std::string &text, size_t at) {
    return std::min(text.find_first_not_of("0123456789abcdef", at), text.size());
}

} // namespace

uint32_t CallSites::number_of(const std::string &text) {
    const auto known = numbers_.find(text);
    if (known != numbers_.end()) {
        return known->second;
    }
    if (text.empty() || texts_.size() == most) {
        return 0;
    }
    texts_.push_back(text);
    return numbers_[text] = static_cast<uint32_t>(texts_.size() - 1);
}

namespace {

CallSite compiled_parts_of(const std::string &text) {
    constexpr std::string_view sign = "+0x";
    for (size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at + 1)) {
        const size_t end = after_digits(text, at + sign.size());
        if (end == text.size()) {
            return {text.substr(0, at), text.substr(at + 1), {}, ""};
        }
        if (text.compare(end, 2, " (") == 0 && text.back() == ')') {
            return {text.substr(0, at), text.substr(end + 2, text.size() - end - 3), {}, ""};
        }
    }
    return {"", text, {}, ""};
}

// path:line (function)
PythonCall python_call_of(const std::string &text) {
    const size_t open = text.find(" (", text.find_last_of('/') + 1);
    const size_t colon = text.rfind(':', open);
    if (open == std::string::npos || colon == std::string::npos || text.back() != ')') {
        return {"", "", text};
    }
    return {text.substr(0, colon), text.substr(colon + 1, open - colon - 1),
            text.substr(open + 2, text.size() - open - 3)};
}

} // namespace

bool PythonCall::is_compiled() const {
    constexpr std::string_view ends[] = {".cpp", ".cc",  ".cxx", ".c",  ".cu",
                                         ".h",   ".hpp", ".cuh", ".so", ".o"};
    return file.empty() || file == "??" || file.find(".so.") != file.npos ||
           std::any_of(std::begin(ends), std::end(ends),
                       [&](std::string_view end) { return file.ends_with(end); });
}

CallSite parts_of(const std::string &text) {
    constexpr char separator = '\t';
    constexpr std::string_view before_tag = "tag ";
    size_t end = std::min(text.find(separator), text.size());
    CallSite site = compiled_parts_of(text.substr(0, end));
    while (end < text.size() && site.calls.size() < most_calls) {
        const size_t begin = end + 1;
        end = std::min(text.find(separator, begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        if (part.starts_with(before_tag)) {
            site.tag = part.substr(before_tag.size());
        } else if (!part.empty()) {
            site.calls.push_back(python_call_of(part));
        }
    }
    return site;
}

const PythonCall *own_call(const CallSite &site) {
    const PythonCall *first = nullptr;
    for (const PythonCall &call : site.calls) {
        if (!call.is_compiled() && !observe::is_installed_python(call.file)) {
            return &call;
        }
        first = first || call.is_compiled() ? first : &call;
    }
    return first;
}

std::string text_of(const PythonCall &call) {
    if (call.is_compiled()) {
        return call.function;
    }
    return fmt::format("{}:{} ({})", call.file.substr(call.file.find_last_of('/') + 1), call.line,
                       call.function);
}

void Timeline::visit(TimelineVisitor &visitor) {
    live_.clear();
    allocations_ = 0;
    LineFile file(log_.path(), log_.name());
    file.where_it_is([&] {
        const std::string_view first = file.first();
        if (!is_event_log(first)) {
            throw Malformed("the header of an event log (EMM_EVENT_LOG)", in_quotes(first));
        }
        file.each([&](std::string_view line) { add(line, visitor); }, report_);
    });
}

// A late free concerns a block that is gone, and a failure changed nothing.
void Timeline::add(std::string_view line, TimelineVisitor &visitor) {
    const LogFields fields = log_fields(line);
    const LogCall call = log_call(fields);
    const LogDetails details = log_details(fields);
    const auto found = std::find(call_names.begin(), call_names.end(), call.type);
    const auto place = static_cast<size_t>(found - call_names.begin());
    const bool is_free = place % 2 == 1;
    const uint64_t time = is_free ? details.start : details.end;
    const Moment moment = {time, details.free, details.total,
                           sites_.number_of(log_location(fields))};
    if (found != call_names.end()) {
        const auto memory = static_cast<Memory>(place / 2);
        is_free ? freed(call, memory, moment, visitor) : allocated(call, memory, moment, visitor);
    } else if (const Drop drop = drop_of(call.type); drop != Drop::none) {
        visitor.other(call, moment);
        drop_all(call, drop, moment, visitor);
    } else if (call.type == "Alloc Failure") {
        visitor.failed(call, moment);
    } else {
        visitor.other(call, moment);
    }
}

void Timeline::allocated(const LogCall &call, Memory memory, const Moment &moment,
                         TimelineVisitor &visitor) {
    const LiveBlock block = {allocations_++, call.device, call.context, call.address,
                             call.stream,    call.size,   memory,       moment.site};
    if (!live_.try_emplace(key_of(call.address, memory), block).second) {
        throw Malformed("an address that is not in use",
                        fmt::format("a second allocation at {:#x}", call.address));
    }
    visitor.allocated(block, moment);
}

void Timeline::freed(const LogCall &call, Memory memory, const Moment &moment,
                     TimelineVisitor &visitor) {
    const auto found = live_.find(key_of(call.address, memory));
    if (found != live_.end()) {
        const LiveBlock block = found->second;
        live_.erase(found);
        visitor.freed(block, call.stream, moment);
    }
}

void Timeline::drop_all(const LogCall &call, Drop drop, const Moment &moment,
                        TimelineVisitor &visitor) {
    for (const LiveBlock &block : live()) {
        if (block.device == call.device && block.context == call.context) {
            live_.erase(key_of(block.address, block.memory));
            visitor.dropped(block, drop, moment);
        }
    }
}

std::vector<LiveBlock> Timeline::live() const {
    std::vector<LiveBlock> blocks;
    for (const auto &[key, block] : live_) {
        blocks.push_back(block);
    }
    std::sort(blocks.begin(), blocks.end(), [](const LiveBlock &one, const LiveBlock &other) {
        return one.number < other.number;
    });
    return blocks;
}

} // namespace emm::tool
