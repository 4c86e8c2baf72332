#include "model.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace model {
namespace {

constexpr uint64_t alignment = 256;

std::string text_of(uint64_t begin, uint64_t end) {
    char text[64];
    std::snprintf(text, sizeof text, "[0x%llx, 0x%llx)", static_cast<unsigned long long>(begin),
                  static_cast<unsigned long long>(end));
    return text;
}

std::string text_of(const Range &range) {
    return std::string(name_of(range.kind)) + " memory of context " +
           std::to_string(range.context) + " at " + text_of(range.begin, range.end);
}

bool overlap(const Range &range, uint64_t begin, uint64_t end) {
    return range.begin < end && begin < range.end;
}

// Each is a rule of emm_stats.
void expect(uint64_t found, uint64_t expected, const char *what) {
    if (found != expected) {
        throw Wrong(std::string(what) + ": expected " + std::to_string(expected) + ", found " +
                    std::to_string(found));
    }
}

void expect_at_most(uint64_t found, uint64_t most, const char *what) {
    if (found > most) {
        throw Wrong(std::string(what) + ": expected at most " + std::to_string(most) + ", found " +
                    std::to_string(found));
    }
}

} // namespace

void Account::judge() const {
    expect_at_most(used, bound ? bound + excess : UINT64_MAX, "what counts against the bound");
    expect_at_most(reserved, used, "what managers have reserved");
}

void Account::judge_refusal(uint64_t size, uint64_t step) const {
    const uint64_t wanted = (size + step - 1) / step * step;
    if (bound && used <= bound && wanted <= bound - used) {
        throw Wrong("a request for " + std::to_string(size) + " bytes was refused, and " +
                    std::to_string(bound - used) + " are left under the bound");
    }
}

const char *name_of(Kind kind) {
    static constexpr const char *names[] = {"device", "pinned", "registered", "managed", "opened"};
    return names[static_cast<int>(kind)];
}

void Model::allocated(size_t context, Kind kind, uint64_t ptr, uint64_t size, size_t graph) {
    const Range range = {ptr, ptr + size, context, kind};
    if (kind != Kind::registered && kind != Kind::opened && (ptr == 0 || ptr % alignment != 0)) {
        throw Wrong("an address that is not aligned: " + text_of(range));
    }
    if (const Range *const live = live_in(range.begin, range.end)) {
        throw Wrong("handed out: " + text_of(range) + ", beside live " + text_of(*live));
    }
    if (const Range *const held = held_in(range.begin, range.end, graph)) {
        throw Wrong("handed out: " + text_of(range) + ", while a graph uses " + text_of(*held));
    }
    live_[ptr] = range;
    Figures &figures = figures_[context];
    if (kind == Kind::device) {
        ++figures.allocations;
        ++figures.live_count;
        figures.live_bytes += size;
        figures.peak = std::max(figures.peak, figures.live_bytes);
    } else if (kind == Kind::pinned) {
        figures.host_bytes += size;
    }
}

void Model::freed(uint64_t ptr) {
    const Range range = live_.at(ptr);
    live_.erase(ptr);
    Figures &figures = figures_[range.context];
    if (range.kind == Kind::device) {
        ++figures.frees;
        --figures.live_count;
        figures.live_bytes -= range.end - range.begin;
    } else if (range.kind == Kind::pinned) {
        figures.host_bytes -= range.end - range.begin;
    }
}

void Model::freed_in_capture(uint64_t ptr, size_t graph) {
    graphs_[graph].held.push_back(live_.at(ptr));
    freed(ptr);
}

void Model::failed(size_t context, bool more_than_once) {
    ++figures_[context].failures;
    figures_[context].may_count_more_failures |= more_than_once;
}

void Model::blurred(size_t context, uint64_t frees, uint64_t bytes) {
    figures_[context].more_frees += frees;
    figures_[context].higher_peak += bytes;
}

void Model::life_ends(size_t graph) {
    if (--graphs_[graph].lives == 0) {
        graphs_.erase(graph);
    }
}

void Model::reset(size_t context) {
    std::erase_if(live_, [=](const auto &each) { return each.second.context == context; });
    for (auto &[number, graph] : graphs_) {
        std::erase_if(graph.held, [=](const Range &range) { return range.context == context; });
    }
    Figures &figures = figures_[context];
    figures.live_bytes = figures.live_count = figures.host_bytes = 0;
    figures.reserved_in_section = 0;
}

void Model::retired(size_t context) {
    reset(context);
    figures_.erase(context);
}

void Model::peaks_reset(size_t context) {
    Figures &figures = figures_[context];
    figures.peak = figures.live_bytes;
    figures.higher_peak = figures.peak_reserved_told = 0;
}

void Model::section_ends(size_t context) {
    Figures &figures = figures_[context];
    if (--figures.sections == 0) {
        figures.reserved_in_section = 0;
    }
}

const Range *Model::live_around(uint64_t address) const {
    return live_in(address, address + 1);
}

bool Model::is_free(uint64_t begin, uint64_t end) const {
    return begin >= end || (!live_in(begin, end) && !held_in(begin, end, 0));
}

bool Model::is_empty(size_t context) const {
    const auto is_its = [=](const Range &range) { return range.context == context; };
    return std::none_of(live_.begin(), live_.end(),
                        [&](const auto &each) { return is_its(each.second); }) &&
           std::none_of(graphs_.begin(), graphs_.end(), [&](const auto &each) {
               return std::any_of(each.second.held.begin(), each.second.held.end(), is_its);
           });
}

void Model::judge(size_t context, const emm_stats &stats) {
    Figures &figures = figures_[context];
    if (!promises_.keeps_account) {
        return expect(stats.host_live_bytes, figures.host_bytes, "host_live_bytes"); // emm's own
    }
    expect(stats.live_bytes, figures.live_bytes, "live_bytes");
    expect(stats.live_count, figures.live_count, "live_count");
    expect(stats.allocations, figures.allocations, "allocations");
    expect_at_most(stats.frees, figures.frees + std::exchange(figures.more_frees, 0), "frees");
    expect_at_most(figures.frees, stats.frees, "frees that were seen and not counted");
    figures.frees = stats.frees;
    if (!figures.any_failures) {
        expect_at_most(figures.failures, stats.failures, "failures that were seen, not counted");
    }
    if (!figures.may_count_more_failures && !figures.any_failures) {
        expect(stats.failures, figures.failures, "failures");
    }
    expect(stats.host_live_bytes, figures.host_bytes, "host_live_bytes");
    expect_at_most(stats.host_live_bytes, stats.host_reserved_bytes, "host_live_bytes");
    expect_at_most(figures.peak, stats.peak_live_bytes, "the peak that was seen, above the told");
    if (promises_.exact_peak) {
        expect_at_most(stats.peak_live_bytes, figures.peak + std::exchange(figures.higher_peak, 0),
                       "peak_live_bytes");
        figures.peak = stats.peak_live_bytes;
    }
    expect_at_most(stats.live_bytes + stats.cached_bytes + stats.pending_bytes,
                   stats.reserved_bytes + stats.paused_bytes, "live, cached and pending bytes");
    expect_at_most(stats.reserved_bytes, stats.peak_reserved_bytes, "reserved_bytes");
    expect_at_most(stats.peak_live_bytes, stats.peak_reserved_bytes, "peak_live_bytes");
    expect_at_most(stats.largest_free_block, stats.cached_bytes, "largest_free_block");
    expect_at_most(figures.peak_reserved_told, stats.peak_reserved_bytes, "an earlier peak");
    expect_at_most(stats.spilled_bytes, stats.reserved_bytes, "spilled_bytes");
    expect_at_most(stats.reserved_bytes - stats.spilled_bytes, figures.bound,
                   "what is reserved of the device since max was changed");
    if (promises_.most) {
        expect_at_most(stats.peak_reserved_bytes, promises_.most, "peak_reserved_bytes");
    }
    if (figures.sections && promises_.keeps_in_sections) {
        expect_at_most(figures.reserved_in_section, stats.reserved_bytes,
                       "bytes reserved earlier in the section");
        figures.reserved_in_section = stats.reserved_bytes;
    }
    figures.peak_reserved_told = stats.peak_reserved_bytes;
}

const Range *Model::live_in(uint64_t begin, uint64_t end) const {
    const auto after = live_.lower_bound(end);
    if (after == live_.begin()) {
        return nullptr;
    }
    const Range &last = std::prev(after)->second;
    return overlap(last, begin, end) ? &last : nullptr;
}

const Range *Model::held_in(uint64_t begin, uint64_t end, size_t but_for_graph) const {
    for (const auto &[number, graph] : graphs_) {
        for (const Range &range : graph.held) {
            if (number != but_for_graph && overlap(range, begin, end)) {
                return &range;
            }
        }
    }
    return nullptr;
}

} // namespace model
