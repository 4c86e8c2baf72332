#include "report/history.h"

#include "report/histograms.h"

#include "trace/builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace emm::tool {
namespace {

constexpr uint32_t no_history = ~uint32_t(0);
constexpr size_t most_allocations = size_t(1) << 30; // a step number needs one more bit

} // namespace

uint16_t Names::number_of(uint64_t name) {
    const auto known = numbers_.find(name);
    if (known != numbers_.end()) {
        return known->second;
    }
    if (names_.size() == most) {
        return most;
    }
    names_.push_back(name);
    return numbers_[name] = static_cast<uint16_t>(names_.size() - 1);
}

std::string Names::text(uint16_t number) const {
    if (number >= names_.size()) {
        return "others";
    }
    return names_[number] == never ? "none" : std::to_string(names_[number]);
}

uint32_t HistoryBuilder::history_of(uint64_t device, Memory memory) {
    std::vector<History> &histories = recorded_.histories;
    for (uint32_t i = 0; i < histories.size(); i++) {
        if (histories[i].device == device && histories[i].memory == memory) {
            return i;
        }
    }
    if (histories.size() == most_histories) {
        return no_history;
    }
    histories.emplace_back();
    histories.back().device = device;
    histories.back().memory = memory;
    live_bytes_.push_back(0);
    peak_bytes_.push_back(0);
    return static_cast<uint32_t>(histories.size() - 1);
}

// Two clocks of a program with several threads may differ by nanoseconds; the order is the rows'.
uint64_t HistoryBuilder::moved_clock(uint64_t time) {
    if (!std::exchange(is_begun_, true)) {
        recorded_.begin = time;
    }
    recorded_.end = std::max({recorded_.end, recorded_.begin, time});
    return recorded_.end;
}

void HistoryBuilder::allocated(uint64_t key, uint64_t device, Memory memory, uint64_t stream,
                               uint64_t thread, const Allocation &block) {
    const uint64_t time = moved_clock(block.begin);
    const uint32_t number = history_of(device, memory);
    if (number == no_history) {
        recorded_.left_off++;
        return;
    }
    History &history = recorded_.histories[number];
    if (history.blocks.size() == most_allocations) {
        throw Malformed("at most " + std::to_string(most_allocations) + " allocations", "one more");
    }
    if (__builtin_add_overflow(live_bytes_[number], block.size, &live_bytes_[number])) {
        throw Malformed("live blocks of less than 2^64 bytes", "more");
    }
    peak_bytes_[number] = std::max(peak_bytes_[number], live_bytes_[number]);
    const auto place = static_cast<uint32_t>(history.blocks.size());
    live_[key] = {number, place, block.size};
    history.blocks.push_back(block);
    Allocation &added = history.blocks.back();
    added.begin = time;
    added.first_step = static_cast<uint32_t>(history.steps.size());
    added.stream = history.streams.number_of(stream);
    added.thread = history.threads.number_of(thread);
    history.steps.push_back(place * 2);
}

std::optional<HistoryBuilder::Place> HistoryBuilder::ended(uint64_t key, uint64_t time) {
    const auto found = live_.find(key);
    if (found == live_.end()) {
        return std::nullopt;
    }
    const Place place = found->second;
    live_.erase(found);
    History &history = recorded_.histories[place.history];
    Allocation &block = history.blocks[place.block];
    block.end = moved_clock(time);
    block.last_step = static_cast<uint32_t>(history.steps.size());
    history.steps.push_back(place.block * 2 + 1);
    live_bytes_[place.history] -= place.size;
    return place;
}

bool HistoryBuilder::freed(uint64_t key, uint64_t time, uint64_t stream) {
    const std::optional<Place> place = ended(key, time);
    if (place) {
        History &history = recorded_.histories[place->history];
        history.blocks[place->block].freed_on = history.streams.number_of(stream);
    }
    return place.has_value();
}

bool HistoryBuilder::dropped(uint64_t key, uint64_t time, Drop drop) {
    const std::optional<Place> place = ended(key, time);
    if (place) {
        History &history = recorded_.histories[place->history];
        Allocation &block = history.blocks[place->block];
        block.freed_on = block.stream;
        block.dropped = drop;
        history.drops.add(drop);
    }
    return place.has_value();
}

void HistoryBuilder::marked(Mark mark) {
    mark.time = moved_clock(mark.time);
    if (!part_.has(mark.time)) {
        return;
    }
    recorded_.mark_count++;
    recorded_.failure_count += mark.is_failure;
    if (recorded_.marks.size() < most_marks) {
        recorded_.marks.push_back(std::move(mark));
    }
}

History history_in(const History &history, Part part) {
    History cut;
    cut.device = history.device;
    cut.memory = history.memory;
    cut.streams = history.streams;
    cut.threads = history.threads;
    cut.begin = part.from;
    std::vector<uint32_t> numbers(history.blocks.size(), no_history);
    const auto begin_block = [&](uint32_t number) {
        numbers[number] = static_cast<uint32_t>(cut.blocks.size());
        cut.blocks.push_back(history.blocks[number]);
        cut.blocks.back().first_step = static_cast<uint32_t>(cut.steps.size());
        cut.blocks.back().last_step = no_step;
        cut.steps.push_back(numbers[number] * 2);
    };
    for (uint32_t number = 0; number < history.blocks.size(); number++) {
        const Allocation &block = history.blocks[number];
        if (block.begin < part.from && block.end >= part.from) {
            begin_block(number);
        }
    }
    cut.live_before = cut.blocks.size();
    for (size_t step = 0; step < history.steps.size(); step++) {
        const uint32_t number = history.steps[step] / 2;
        if (!part.has(history.time_of(step))) {
            continue;
        }
        if (!history.is_free(step)) {
            begin_block(number);
            continue;
        }
        Allocation &block = cut.blocks[numbers[number]];
        block.last_step = static_cast<uint32_t>(cut.steps.size());
        cut.drops.add(block.dropped);
        cut.steps.push_back(numbers[number] * 2 + 1);
    }
    return cut;
}

void HistoryBuilder::finish() {
    recorded_.part = part_;
    recorded_.last = recorded_.end;
    if (!part_.is_all()) {
        recorded_.begin = std::max(recorded_.begin, part_.from);
        recorded_.end = std::max(recorded_.begin, std::min(recorded_.end, part_.to));
        recorded_.rows = recorded_.mark_count;
        std::vector<History> parts;
        peak_bytes_.clear();
        for (const History &history : recorded_.histories) {
            History part = history_in(history, part_);
            if (!part.blocks.empty()) {
                recorded_.rows += part.steps.size() - part.live_before;
                peak_bytes_.push_back(peak_of(part).bytes);
                parts.push_back(std::move(part));
            }
        }
        recorded_.histories = std::move(parts);
    }
    std::vector<size_t> order(recorded_.histories.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [this](size_t one, size_t other) {
        const bool is_device = recorded_.histories[one].memory == Memory::device;
        const bool is_other_device = recorded_.histories[other].memory == Memory::device;
        return is_device != is_other_device ? is_device : peak_bytes_[one] > peak_bytes_[other];
    });
    std::vector<History> sorted;
    for (const size_t number : order) {
        sorted.push_back(std::move(recorded_.histories[number]));
    }
    recorded_.histories = std::move(sorted);
}

} // namespace emm::tool
