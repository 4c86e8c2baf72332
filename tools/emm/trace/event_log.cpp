#include "trace/event_log.h"

#include "observe/events/rows.h"
#include "problem.h"
#include "trace/log_row.h"

#include <algorithm>
#include <emm/emm.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {

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

// A replay frees the blocks that a reset drops: nothing else belongs to its context.
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
