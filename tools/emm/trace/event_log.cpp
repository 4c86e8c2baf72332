#include "trace/event_log.h"

#include "problem.h"

#include <array>
#include <charconv>
#include <emm/emm.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {
namespace {

constexpr size_t log_columns = 12;

// The last one, which may be quoted, is all that is left.
std::array<std::string_view, log_columns> split_log(std::string_view line) {
    std::array<std::string_view, log_columns> fields;
    std::string_view rest = line;
    for (size_t i = 0; i + 1 < log_columns; i++) {
        const size_t comma = rest.find(',');
        if (comma == std::string_view::npos) {
            throw Malformed("the 12 fields of an event log", std::to_string(i + 1));
        }
        fields[i] = rest.substr(0, comma);
        rest.remove_prefix(comma + 1);
    }
    fields.back() = rest;
    return fields;
}

uint64_t number(std::string_view text, const char *what) {
    const bool is_address = text.substr(0, 2) == "0x";
    const std::string_view digits = text.substr(is_address ? 2 : 0);
    const char *const end = digits.data() + digits.size();
    uint64_t value = 0;
    const auto [stopped, error] = std::from_chars(digits.data(), end, value, is_address ? 16 : 10);
    if (error != std::errc() || stopped != end) {
        throw Malformed(std::string("a number for ") + what, "'" + std::string(text) + "'");
    }
    return value;
}

uint64_t stream_of(std::string_view text) {
    return text == "-1" ? ~uint64_t(0) : number(text, "Stream");
}

} // namespace

bool complete_event_log(const std::string &path) {
    const bool is_incomplete = access((path + ".spool").c_str(), F_OK) == 0;
    if (emm_event_log_recover(path.c_str()) < 0) {
        Problem problem = last_problem("trace");
        problem.path = path;
        throw Failure(problem);
    }
    return is_incomplete;
}

void EventLogReader::add(std::string_view line) {
    const auto fields = split_log(line);
    const std::string_view type = fields[0];
    const uint64_t device = number(fields[1], "Device ID"), address = number(fields[2], "Address");
    const uint64_t stream = stream_of(fields[3]), size = number(fields[4], "Size (bytes)");
    const auto block = live_.find(address);
    if (type == "Alloc") {
        allocated(address, {next_id_++, device, stream, size});
    } else if (type == "Free" && block != live_.end()) {
        freed(block, stream);
    } else if (type == "Reset" || type == "Retire") {
        drop_all(device);
    } else if (type == "Defer Begin") {
        section(Op::defer_begin);
    } else if (type == "Defer End") {
        section(Op::defer_end);
    } else {
        builder_.add({0, 0, 0, Op::mark, -1, 0});
    }
}

void EventLogReader::allocated(uint64_t address, const Live &block) {
    const auto before = live_.find(address);
    if (before != live_.end()) {
        throw Malformed("an address that is not in use",
                        fmt::format("a second allocation at {:#x}", address));
    }
    builder_.add({0, 0, block.stream, Op::alloc, block.id, block.size});
    live_[address] = block;
}

void EventLogReader::freed(std::unordered_map<uint64_t, Live>::iterator block, uint64_t stream) {
    builder_.add({0, 0, stream, Op::free, block->second.id, block->second.size});
    live_.erase(block);
}

// A replay frees the blocks that a reset drops: nothing else belongs to its context.
void EventLogReader::drop_all(uint64_t device) {
    for (auto block = live_.begin(); block != live_.end();) {
        const auto here = block++;
        if (here->second.device == device) {
            freed(here, here->second.stream);
        }
    }
}

void EventLogReader::section(Op op) {
    depth_ += op == Op::defer_begin;
    const bool unmatched = op == Op::defer_end && depth_ == 0;
    depth_ -= op == Op::defer_end && !unmatched;
    builder_.add({0, 0, 0, unmatched ? Op::mark : op, -1, 0});
}

} // namespace emm::tool
