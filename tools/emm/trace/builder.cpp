#include "trace/builder.h"

#include "observe/text.h"

#include <algorithm>
#include <utility>

namespace emm::tool {
namespace {

constexpr size_t most_events = size_t(1) << 28; // 6 GiB of memory

uint32_t number_of(std::unordered_map<uint64_t, uint32_t> &numbers, uint64_t name, uint32_t most,
                   const char *what) {
    const auto [found, is_new] = numbers.try_emplace(name, static_cast<uint32_t>(numbers.size()));
    if (is_new && numbers.size() > most) {
        throw Malformed("at most " + std::to_string(most) + " " + what, "one more");
    }
    return found->second;
}

} // namespace

const char *name_of(Op op) {
    switch (op) {
    case Op::alloc:
        return "alloc";
    case Op::free:
        return "free";
    case Op::mark:
        return "mark";
    case Op::defer_begin:
        return "defer_begin";
    case Op::defer_end:
        return "defer_end";
    }
    return "";
}

std::string drops_text(const Drops &drops) {
    std::string text;
    if (drops.by_reset != 0) {
        text += ", " + std::to_string(drops.by_reset) + " dropped by a reset";
    }
    if (drops.with_context != 0) {
        text += ", " + std::to_string(drops.with_context) + " dropped with their context";
    }
    return text;
}

uint64_t Trace::calls() const {
    return static_cast<uint64_t>(std::count_if(
        events.begin(), events.end(), [](const Event &event) { return event.op != Op::mark; }));
}

Failure bad_file(const std::string &name, const std::string &place, const Malformed &malformed) {
    return Failure({.stage = "trace",
                    .message = observe::one_line(name + (place.empty() ? "" : ", " + place) + ": " +
                                                 malformed.what()),
                    .path = name,
                    .expected = malformed.expected,
                    .got = malformed.got});
}

void TraceBuilder::add(const Row &row) {
    if (row.time < time_) {
        throw Malformed("a time that never decreases",
                        std::to_string(row.time) + " after " + std::to_string(time_));
    }
    if (trace_.events.size() == most_events) {
        throw Malformed("at most " + std::to_string(most_events) + " events", "one more");
    }
    Event event;
    event.op = row.op;
    event.size = row.size;
    switch (row.op) {
    case Op::alloc:
        event.block = allocated(row);
        break;
    case Op::free:
        event.block = freed(row);
        break;
    case Op::mark:
        break;
    case Op::defer_begin:
    case Op::defer_end:
        section(row);
        break;
    }
    event.thread = static_cast<uint16_t>(number_of(threads_, row.thread, most_threads, "threads"));
    if (row.op == Op::alloc || row.op == Op::free) {
        event.stream =
            static_cast<uint16_t>(number_of(streams_, row.stream, most_streams, "streams"));
    }
    if (!trace_.events.empty()) {
        event.gap = static_cast<uint32_t>(std::min<uint64_t>(row.time - time_, longest_gap));
    }
    trace_.drops.add(row.drop);
    time_ = row.time;
    trace_.events.push_back(event);
}

uint32_t TraceBuilder::allocated(const Row &row) {
    const std::string id = std::to_string(row.id);
    if (row.size == 0) {
        throw Malformed("an allocation of at least one byte", "size 0 for id " + id);
    }
    if (!seen_.insert(row.id).second) {
        throw Malformed("an id that was never used before", "id " + id + " again");
    }
    live_[row.id] = {trace_.blocks, row.size};
    if (__builtin_add_overflow(live_bytes_, row.size, &live_bytes_)) {
        throw Malformed("live blocks of less than 2^64 bytes", "more");
    }
    trace_.peak_live_bytes = std::max(trace_.peak_live_bytes, live_bytes_);
    return trace_.blocks++;
}

uint32_t TraceBuilder::freed(const Row &row) {
    const std::string id = std::to_string(row.id);
    const auto found = live_.find(row.id);
    if (found == live_.end()) {
        throw Malformed("the id of a live block",
                        "a free of id " + id +
                            (seen_.count(row.id) ? ", freed before" : ", never allocated"));
    }
    const Live block = found->second;
    if (block.size != row.size) {
        throw Malformed("the size of the allocation, " + std::to_string(block.size),
                        std::to_string(row.size) + " for id " + id);
    }
    live_.erase(found);
    live_bytes_ -= block.size;
    return block.block;
}

void TraceBuilder::section(const Row &row) {
    if (row.op == Op::defer_begin) {
        depth_++;
    } else if (depth_ == 0) {
        throw Malformed("defer_begin before its defer_end", "defer_end alone");
    } else {
        depth_--;
    }
}

Trace TraceBuilder::finish(std::string name) {
    if (trace_.events.empty()) {
        throw Malformed("at least one event", "none");
    }
    trace_.name = std::move(name);
    trace_.threads = static_cast<uint32_t>(threads_.size());
    trace_.streams = static_cast<uint32_t>(streams_.size());
    if (const auto found = streams_.find(Row::unordered); found != streams_.end()) {
        trace_.unordered = found->second;
    }
    trace_.open_sections = depth_;
    return std::move(trace_);
}

} // namespace emm::tool
