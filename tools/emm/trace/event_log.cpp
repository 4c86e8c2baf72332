#include "trace/event_log.h"

#include "observe/events/rows.h"
#include "print.h"
#include "problem.h"

#include <algorithm>
#include <charconv>
#include <emm/emm.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {

namespace {

constexpr size_t location = 11, context = 12;

uint64_t number(std::string_view text, const char *what) {
    const bool is_address = text.substr(0, 2) == "0x";
    const std::string_view digits = text.substr(is_address ? 2 : 0);
    const char *const end = digits.data() + digits.size();
    uint64_t value = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), end, value, is_address ? 16 : 10);
    if (error != std::errc() || stopped != end) {
        throw Malformed(std::string("a number for ") + what, in_quotes(text));
    }
    return value;
}

uint64_t stream_of(std::string_view text) {
    return text == "-1" ? Row::unordered : number(text, "Stream");
}

// Seconds with up to nine digits behind the point.
uint64_t nanoseconds(std::string_view text, const char *what) {
    constexpr size_t digits = 9;
    constexpr uint64_t second = 1'000'000'000;
    const size_t point = text.find('.');
    const std::string_view whole = text.substr(0, point);
    std::string part(point == std::string_view::npos ? "" : text.substr(point + 1));
    part.resize(digits, '0');
    uint64_t sum = 0;
    if (__builtin_mul_overflow(number(whole, what), second, &sum) ||
        __builtin_add_overflow(sum, number(part, what), &sum)) {
        throw Malformed(std::string("seconds for ") + what, "more than 584 years");
    }
    return sum;
}

} // namespace

LogFields log_fields(std::string_view line) {
    LogFields fields;
    std::string_view rest = line;
    for (size_t i = 0; i < location; i++) {
        const size_t comma = rest.find(',');
        if (comma == std::string_view::npos) {
            throw Malformed("the 12 fields of an event log, or 13", std::to_string(i + 1));
        }
        fields[i] = rest.substr(0, comma);
        rest.remove_prefix(comma + 1);
    }
    // A location with a comma is quoted.
    const size_t comma = rest.ends_with('"') ? std::string_view::npos : rest.rfind(',');
    fields[location] = rest.substr(0, comma);
    fields[context] = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    return fields;
}

LogCall log_call(const LogFields &fields) {
    return {fields[0],
            number(fields[1], "Device ID"),
            number(fields[2], "Address"),
            stream_of(fields[3]),
            number(fields[4], "Size (bytes)"),
            fields[context].empty() ? 0 : number(fields[context], "Context")};
}

LogDetails log_details(const LogFields &fields) {
    return {number(fields[5], "Free Memory"), number(fields[6], "Total Memory"), log_start(fields),
            nanoseconds(fields[9], "End")};
}

uint64_t log_start(const LogFields &fields) {
    return nanoseconds(fields[8], "Start");
}

std::string log_location(const LogFields &fields) {
    std::string_view text = fields[location];
    if (text.size() < 2 || text.front() != '"' || text.back() != '"') {
        return std::string(text);
    }
    text = text.substr(1, text.size() - 2);
    std::string plain;
    for (size_t i = 0; i < text.size(); i++) {
        plain += text[i];
        i += text.substr(i, 2) == "\"\"";
    }
    return plain;
}

Drop drop_of(std::string_view type) {
    return type == "Reset" ? Drop::reset : type == "Retire" ? Drop::context_end : Drop::none;
}

bool is_event_log(std::string_view first_line) {
    constexpr std::string_view added = ",Context\n";
    static_assert(observe::Rows::header.ends_with(added));
    const std::string_view all = observe::Rows::header;
    return first_line == all.substr(0, all.size() - 1) ||
           first_line == all.substr(0, all.size() - added.size());
}

bool complete_event_log(const std::string &path) {
    const bool is_incomplete = access((path + ".spool").c_str(), F_OK) == 0;
    if (emm_event_log_recover(path.c_str()) < 0) {
        Problem problem = last_problem("trace");
        problem.path = path;
        if (problem.code == EMM_E_BUSY) {
            problem.hint = "A copy of the log can be read now; it lacks the latest events.";
        }
        throw Failure(problem);
    }
    return is_incomplete;
}

void EventLogReader::add(std::string_view line) {
    const LogFields fields = log_fields(line);
    const auto [type, device, address, stream, size, context] = log_call(fields);
    time_ = std::max(time_, log_start(fields) / 1000); // threads' rows may be out of order
    const auto block = live_.find(address);
    if (type == "Alloc") {
        allocated(address, {next_id_++, device, context, stream, size});
    } else if (type == "Free" && block != live_.end()) {
        freed(block, stream);
    } else if (const Drop drop = drop_of(type); drop != Drop::none) {
        drop_all(device, context, drop);
    } else if (type == "Defer Begin") {
        section(Op::defer_begin);
    } else if (type == "Defer End") {
        section(Op::defer_end);
    } else {
        builder_.add({time_, 0, 0, Op::mark, -1, 0});
    }
}

void EventLogReader::allocated(uint64_t address, const Live &block) {
    const auto before = live_.find(address);
    if (before != live_.end()) {
        throw Malformed("an address that is not in use",
                        fmt::format("a second allocation at {:#x}", address));
    }
    builder_.add({time_, 0, block.stream, Op::alloc, block.id, block.size});
    live_[address] = block;
}

void EventLogReader::freed(std::unordered_map<uint64_t, Live>::iterator block, uint64_t stream,
                           Drop drop) {
    builder_.add({time_, 0, stream, Op::free, block->second.id, block->second.size, drop});
    live_.erase(block);
}

// A replay frees the blocks that a reset drops; its context has no other state.
void EventLogReader::drop_all(uint64_t device, uint64_t context, Drop drop) {
    for (auto block = live_.begin(); block != live_.end();) {
        const auto here = block++;
        if (here->second.device == device && here->second.context == context) {
            freed(here, here->second.stream, drop);
        }
    }
}

void EventLogReader::section(Op op) {
    depth_ += op == Op::defer_begin;
    const bool unmatched = op == Op::defer_end && depth_ == 0;
    depth_ -= op == Op::defer_end && !unmatched;
    builder_.add({time_, 0, 0, unmatched ? Op::mark : op, -1, 0});
}

} // namespace emm::tool
