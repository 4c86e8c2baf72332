#include "race.h"

#include "call.h"
#include "simulator.h"
#include "stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace simcuda {
namespace {

bool before(const Access &earlier, const Clock &clock, const Host &host) {
    return earlier.time == 0 || host.has_seen(earlier.line, earlier.time) ||
           clock.has(earlier.line, earlier.time);
}

} // namespace

void add_use(std::vector<Access> &uses, const Access &use, const Host &host) {
    std::erase_if(uses, [&](const Access &old) {
        return old.line == use.line || host.has_seen(old.line, old.time);
    });
    uses.push_back(use);
}

void Shadow::split(uint64_t at) {
    auto cell = cells_.upper_bound(at);
    if (cell == cells_.begin()) {
        return;
    }
    --cell;
    if (cell->first < at && at < cell->second.end) {
        cells_.emplace(at, cell->second);
        cell->second.end = at;
    }
}

void Shadow::fill_gaps(uint64_t start, uint64_t end) {
    for (auto cell = cells_.lower_bound(start); start < end; ++cell) {
        const uint64_t next = cell == cells_.end() ? end : std::min(end, cell->first);
        if (start < next) {
            cell = cells_.emplace(start, Cell{next, {}, {}}).first;
        }
        start = cell->second.end;
    }
}

std::optional<Access> Shadow::use(uint64_t start, uint64_t size, const Access &access,
                                  const Clock &clock, const Clock &begun, const Host &host) {
    const uint64_t end = start + size;
    std::optional<Access> conflict;
    const auto check = [&](const Access &earlier) {
        const bool same_work = earlier.line == access.line && earlier.time == access.time;
        const bool unseen = earlier.place != access.place && (earlier.write || same_work);
        if (!conflict && !before(earlier, unseen ? begun : clock, host)) {
            conflict = earlier;
        }
    };
    split(start);
    split(end);
    if (!access.write) {
        fill_gaps(start, end);
    }
    for (auto cell = cells_.lower_bound(start); cell != cells_.end() && cell->first < end; ++cell) {
        check(cell->second.write);
        if (!access.write) {
            add_use(cell->second.reads, access, host);
            continue;
        }
        std::for_each(cell->second.reads.begin(), cell->second.reads.end(), check);
    }
    if (access.write) {
        cells_.erase(cells_.lower_bound(start), cells_.lower_bound(end));
        cells_.emplace(start, Cell{end, access, {}});
    }
    return conflict;
}

std::optional<Access> Shadow::unseen(uint64_t start, uint64_t size, const Host &host) const {
    auto cell = cells_.upper_bound(start);
    if (cell != cells_.begin() && std::prev(cell)->second.end > start) {
        --cell;
    }
    const Clock nothing;
    for (; cell != cells_.end() && cell->first < start + size; ++cell) {
        if (!before(cell->second.write, nothing, host)) {
            return cell->second.write;
        }
        for (const Access &read : cell->second.reads) {
            if (!before(read, nothing, host)) {
                return read;
            }
        }
    }
    return std::nullopt;
}

void Shadow::clear(uint64_t start, uint64_t size) {
    split(start);
    split(start + size);
    cells_.erase(cells_.lower_bound(start), cells_.lower_bound(start + size));
}

namespace {

std::string text_of(const Access &access) {
    char text[160];
    snprintf(text, sizeof text, "%s (%s, stream %p of id %u, thread %u)", access.call,
             access.write ? "writes" : "reads", static_cast<void *>(access.stream),
             access.stream_id, access.thread);
    return text;
}

std::string range_of(CUdeviceptr address, uint64_t size) {
    char text[96];
    snprintf(text, sizeof text, "[0x%llx, 0x%llx)", address,
             static_cast<unsigned long long>(address + size));
    return text;
}

void report(const std::string &text) {
    Simulator &simulator = sim();
    ++simulator.races;
    simulator.last_race = text;
    if (simulator.options.abort_on_race) {
        fprintf(stderr, "simcuda: race: %s\n", text.c_str());
        abort();
    }
}

} // namespace

void report_race(const Access &earlier, const Access &later, bool ordered, CUdeviceptr address,
                 uint64_t size) {
    report(text_of(later) + " uses " + range_of(address, size) +
           (ordered ? " and began before the end of what used it at another address: "
                    : " and is not ordered after ") +
           text_of(earlier));
}

void report_unseen(const Access &user, CUdeviceptr address, uint64_t size) {
    report(std::string(this_thread.call) + " (thread " + std::to_string(this_thread.number) +
           ") takes " + range_of(address, size) + " away, and the CPU has not seen the end of " +
           text_of(user));
}

void check_uses(const std::vector<Use> &uses, const Stream &stream, uint32_t line, uint64_t time,
                const Clock &clock, const Clock &begun) {
    const Host &host = sim().host;
    for (const Use &use : uses) {
        if (!use.span.store || use.span.size == 0) {
            continue;
        }
        Region *region = sim().regions.around(use.span.address);
        const bool mapped = region && region->kind == Kind::mapped;
        const Access access{line,          static_cast<uint32_t>(stream.id),
                            time,          this_thread.call,
                            stream.handle, this_thread.number,
                            use.write,     mapped ? region->id : 0};
        if (mapped) {
            add_use(region->uses, access, host);
        }
        const auto earlier =
            use.span.store->shadow.use(use.span.offset, use.span.size, access, clock, begun, host);
        if (earlier) {
            report_race(*earlier, access, before(*earlier, clock, host), use.span.address,
                        use.span.size);
        }
    }
}

} // namespace simcuda
