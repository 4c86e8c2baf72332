#include "clock.h"

#include <algorithm>

namespace simcuda {
namespace {

auto at_line(std::vector<std::pair<uint32_t, uint64_t>> &entries, uint32_t line) {
    return std::lower_bound(entries.begin(), entries.end(), std::pair<uint32_t, uint64_t>{line, 0});
}

} // namespace

void Clock::join(const Clock &other, const Host &host) {
    for (const auto &[line, time] : other.entries_) {
        if (!host.has_seen(line, time)) {
            set(line, time);
        }
    }
}

void Clock::set(uint32_t line, uint64_t time) {
    const auto found = at_line(entries_, line);
    if (found == entries_.end() || found->first != line) {
        entries_.insert(found, {line, time});
    } else if (found->second < time) {
        found->second = time;
    }
}

bool Clock::has(uint32_t line, uint64_t time) const {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), std::pair<uint32_t, uint64_t>{line, 0});
    return found != entries_.end() && found->first == line && time <= found->second;
}

bool Clock::is_within(const Clock &other, const Host &host) const {
    return std::all_of(entries_.begin(), entries_.end(), [&](const auto &entry) {
        return host.has_seen(entry.first, entry.second) || other.has(entry.first, entry.second);
    });
}

void Clock::trim(const Host &host) {
    entries_.erase(
        std::remove_if(entries_.begin(), entries_.end(),
                       [&](const auto &entry) { return host.has_seen(entry.first, entry.second); }),
        entries_.end());
}

void Clock::seen_by(Host &host) const {
    for (const auto &[line, time] : entries_) {
        host.see(line, time);
    }
}

} // namespace simcuda
