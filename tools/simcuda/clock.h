#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace simcuda {

// The work that the host knows to be complete: a position for each line of work. All host threads
// share one such clock, because a lock between two of them is invisible to the driver.
class Host {
public:
    uint32_t new_line() {
        seen_.push_back(0);
        return static_cast<uint32_t>(seen_.size() - 1);
    }
    bool has_seen(uint32_t line, uint64_t time) const { return time <= seen_[line]; }
    void see(uint32_t line, uint64_t time) {
        if (time > seen_[line]) {
            seen_[line] = time;
        }
    }

private:
    std::vector<uint64_t> seen_;
};

// A vector clock: on each line, work up to `time` is ordered before. Work that the host has seen
// complete is ordered before all later work, and is left out.
class Clock {
public:
    void join(const Clock &other, const Host &host);
    void set(uint32_t line, uint64_t time);
    bool has(uint32_t line, uint64_t time) const;
    bool is_within(const Clock &other, const Host &host) const;
    void trim(const Host &host);
    void seen_by(Host &host) const;

private:
    std::vector<std::pair<uint32_t, uint64_t>> entries_; // by line
};

} // namespace simcuda
