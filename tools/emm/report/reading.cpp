#include "report/history.h"

#include "exchange/snapshot.h"
#include "observe/text.h"
#include "print.h"
#include "trace/event_log.h"
#include "trace/file.h"
#include "trace/reader.h"

#include <fmt/format.h>

namespace emm::tool {
namespace {

class LogReader : public TimelineVisitor {
public:
    LogReader(Recorded &recorded, Part part) : recorded_(recorded), builder_(recorded, part) {}

    void allocated(const LiveBlock &block, const Moment &moment) override {
        Allocation allocation;
        allocation.address = block.address;
        allocation.size = block.size;
        allocation.begin = moment.time;
        allocation.site = block.site;
        allocation.context = recorded_.contexts.number_of(block.context);
        recorded_.rows++;
        builder_.allocated(block.number, block.device, block.memory, block.stream, 0, allocation);
    }
    void freed(const LiveBlock &block, uint64_t stream, const Moment &moment) override {
        recorded_.rows++;
        builder_.freed(block.number, moment.time, stream);
    }
    // One row drops all blocks of the context.
    void dropped(const LiveBlock &block, Drop drop, const Moment &moment) override {
        builder_.dropped(block.number, moment.time, drop);
    }
    void failed(const LogCall &call, const Moment &moment) override {
        recorded_.rows++;
        builder_.marked({moment.time, text_of(call), call.size, moment.site, true, moment.free});
    }
    void other(const LogCall &call, const Moment &moment) override {
        const bool is_failure = call.type.ends_with(" Failure");
        recorded_.rows++;
        if (call.type == "Pool") {
            recorded_.pools[std::to_string(call.context)] =
                observe::one_line(recorded_.sites.text(moment.site));
        }
        builder_.marked({moment.time, text_of(call), call.size, moment.site, is_failure});
    }
    void finish() { builder_.finish(); }

private:
    std::string text_of(const LogCall &call) const {
        const auto pool = recorded_.pools.find(std::to_string(call.context));
        return std::string(call.type) +
               (pool == recorded_.pools.end() ? "" : ", pool " + pool->second);
    }

    Recorded &recorded_;
    HistoryBuilder builder_;
};

uint64_t nanoseconds_of(uint64_t microseconds) {
    uint64_t time = 0;
    if (__builtin_mul_overflow(microseconds, uint64_t(1000), &time)) {
        throw Malformed("microseconds of less than 584 years", std::to_string(microseconds));
    }
    return time;
}

class TraceRows {
public:
    TraceRows(Recorded &recorded, Part part) : recorded_(recorded), builder_(recorded, part) {}

    void add(const Row &row) {
        const uint64_t time = nanoseconds_of(row.time);
        if (row.time < before_) {
            throw Malformed("microseconds that never decrease",
                            std::to_string(row.time) + " after " + std::to_string(before_));
        }
        before_ = row.time;
        recorded_.rows++;
        if (row.op == Op::alloc) {
            allocate(row, time);
        } else if (row.op == Op::free) {
            release(row, time);
        } else {
            const std::string name = name_of(row.op);
            builder_.marked({time, row.op == Op::mark ? name + " " + std::to_string(row.id) : name,
                             0, 0, false});
        }
    }
    void finish() { builder_.finish(); }

private:
    void allocate(const Row &row, uint64_t time) {
        if (row.size == 0) {
            throw Malformed("an allocation of at least one byte",
                            fmt::format("size 0 for id {}", row.id));
        }
        if (!sizes_.emplace(row.id, row.size).second) {
            throw Malformed("an id that is not in use", fmt::format("id {} again", row.id));
        }
        Allocation block;
        block.size = row.size;
        block.begin = time;
        builder_.allocated(static_cast<uint64_t>(row.id), 0, Memory::device, row.stream, row.thread,
                           block);
    }
    void release(const Row &row, uint64_t time) {
        const auto found = sizes_.find(row.id);
        if (found == sizes_.end()) {
            throw Malformed("the id of a live block", fmt::format("a free of id {}", row.id));
        }
        if (found->second != row.size) {
            throw Malformed(fmt::format("the size of the allocation, {}", found->second),
                            fmt::format("{} for id {}", row.size, row.id));
        }
        sizes_.erase(found);
        builder_.freed(static_cast<uint64_t>(row.id), time, row.stream);
    }

    Recorded &recorded_;
    HistoryBuilder builder_;
    uint64_t before_ = 0;
    std::unordered_map<int64_t, uint64_t> sizes_; // of live blocks
};

// From the mark of the step's number to the next mark.
Part part_of_step(const Input &input, int64_t step) {
    LineFile file(input.path(), input.name());
    std::optional<Part> part;
    file.where_it_is([&] {
        file.first();
        file.each(
            [&](std::string_view line) {
                const Row row = trace_row(line);
                if (row.op != Op::mark) {
                    return;
                }
                if (part && part->to == never) {
                    part->to = nanoseconds_of(row.time);
                } else if (!part && row.id == step) {
                    part = {nanoseconds_of(row.time), never};
                }
            },
            nullptr);
        if (!part) {
            throw Malformed("a mark for --step " + std::to_string(step), "none of that number");
        }
    });
    return *part;
}

void read_log_rows(const Input &input, Part part, const std::function<void(double)> &report,
                   Recorded &recorded) {
    LogReader reader(recorded, part);
    Timeline(input, recorded.sites, report).visit(reader);
    reader.finish();
}

void read_trace_rows(LineFile &file, Part part, const std::function<void(double)> &report,
                     Recorded &recorded) {
    TraceRows rows(recorded, part);
    file.where_it_is(
        [&] { file.each([&](std::string_view line) { rows.add(trace_row(line)); }, report); });
    rows.finish();
}

class SnapshotRows : public RecordingVisitor {
public:
    SnapshotRows(const Snapshot &snapshot, Part part, Recorded &recorded)
        : snapshot_(snapshot), recorded_(recorded), builder_(recorded, part) {}

    void allocated(const RecordedEvent &event, const Place &place) override {
        Allocation block;
        block.address = event.address;
        block.size = event.size;
        block.begin = nanoseconds_of(event.time);
        block.site = event.site;
        block.context = recorded_.contexts.number_of(0);
        recorded_.rows++;
        add_reserve(event);
        builder_.allocated(place.id, snapshot_.device(), Memory::device, event.stream, place.thread,
                           block);
    }
    void freed(const RecordedEvent &event, const Place &place) override {
        recorded_.rows++;
        add_reserve(event);
        builder_.freed(place.id, nanoseconds_of(event.time), event.stream);
    }
    void marked(const RecordedEvent &event, const Place &) override {
        recorded_.rows++;
        builder_.marked({nanoseconds_of(event.time),
                         event.is_failure ? "out of memory" : "snapshot", event.size, event.site,
                         event.is_failure, event.free});
    }
    void finish() {
        builder_.finish();
        recorded_.sites = snapshot_.sites();
        const Snapshot::Segments told = snapshot_.segments_told();
        if (told.is_told && recorded_.part.is_all()) {
            reserve_.taken = told.taken;
            reserve_.given_back = told.given_back;
            recorded_.reserve = std::move(reserve_);
        }
    }

private:
    // Memory that was live before the recording is allocated without an event; the first event
    // tells the reserve of that time.
    void add_reserve(const RecordedEvent &event) {
        if (event.reserved != 0 && live_before_ == reserve_.reserved.size()) {
            std::fill(reserve_.reserved.begin(), reserve_.reserved.end(), event.reserved);
        }
        live_before_ += event.reserved == 0 && live_before_ == reserve_.reserved.size();
        reserve_.reserved.push_back(event.reserved);
        reserve_.pending.push_back(event.pending);
    }

    Recorded::Reserve reserve_;
    size_t live_before_ = 0; // events without a reserve, in the beginning
    const Snapshot &snapshot_;
    Recorded &recorded_;
    HistoryBuilder builder_;
};

bool is_pickle(const Input &input) {
    char first = 0;
    return ByteFile(input.path(), input.name()).read(&first, 1) == 1 && first == '\x80';
}

void read_snapshot(const Input &input, const PartChoice &choice,
                   const std::function<void(double)> &report, Recorded &recorded) {
    ByteFile file(input.path(), input.name());
    const auto source = [&](char *into, size_t most) {
        report(file.share());
        return file.read(into, most);
    };
    Snapshot snapshot(source, input.name(), choice.device, true);
    SnapshotRows rows(snapshot, choice.part, recorded);
    go_through(snapshot, rows, [] {});
    rows.finish();
}

void check_not_empty(const Recorded &recorded, const std::string &name) {
    if (recorded.part.from > recorded.last) {
        throw bad_file(name, "",
                       Malformed(fmt::format("--from of at most {} s, where the recording ends",
                                             double(recorded.last) / 1e9),
                                 fmt::format("{} s", double(recorded.part.from) / 1e9)));
    }
    if (recorded.histories.empty()) {
        throw bad_file(name, "",
                       Malformed(recorded.part.is_all() ? "at least one allocation"
                                                        : "a live block in that part",
                                 "none"));
    }
}

} // namespace

Recorded read_recorded(const Input &input, const PartChoice &choice,
                       const std::function<void(double)> &report) {
    Recorded recorded;
    if (is_pickle(input)) {
        recorded.kind = Recorded::snapshot_kind;
        recorded.is_log = true;
        read_snapshot(input, choice, report, recorded);
        check_not_empty(recorded, input.name());
        return recorded;
    }
    if (input.path() == input.name()) {
        complete_event_log(input.path());
    }
    LineFile file(input.path(), input.name());
    const std::string first = file.where_it_is([&] { return std::string(file.first()); });
    recorded.is_log = is_event_log(first);
    if (recorded.is_log) {
        recorded.kind = "event log";
        if (choice.step) {
            throw bad_file(input.name(), "",
                           Malformed("a trace for --step, which has marks", "an event log"));
        }
        read_log_rows(input, choice.part, report, recorded);
    } else if (first == trace_first_line) {
        read_trace_rows(file, choice.step ? part_of_step(input, *choice.step) : choice.part, report,
                        recorded);
    } else {
        throw bad_file(
            input.name(), "line 1",
            Malformed(fmt::format("the header {} or that of an event log", trace_first_line),
                      in_quotes(first)));
    }
    check_not_empty(recorded, input.name());
    return recorded;
}

} // namespace emm::tool
