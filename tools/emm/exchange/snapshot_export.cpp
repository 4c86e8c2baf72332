#include "exchange/exports.h"

#include "exchange/conversion.h"
#include "exchange/pickle.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace emm::tool {
namespace {

constexpr uint64_t most_exported_devices = 1024;
constexpr uint64_t part_events =
    300; // events between the parts of a list; the viewer takes some thousands

// How many events each device has.
class Census : public TimelineVisitor {
public:
    void allocated(const LiveBlock &block, const Moment &) override {
        count(block.device, block.memory);
    }
    void freed(const LiveBlock &block, uint64_t, const Moment &) override {
        count(block.device, block.memory);
    }
    void failed(const LogCall &call, const Moment &) override {
        count(call.device, Memory::device);
    }
    void dropped(const LiveBlock &block, Drop drop, const Moment &) override {
        count(block.device, block.memory);
        if (block.memory == Memory::device) {
            drops_.add(drop);
        }
    }
    const std::vector<uint64_t> &counts() const { return counts_; }
    const Drops &drops() const { return drops_; }

private:
    void count(uint64_t device, Memory memory) {
        if (memory != Memory::device) {
            return;
        }
        if (device >= most_exported_devices) {
            throw Malformed(fmt::format("a Device ID below {}", most_exported_devices),
                            std::to_string(device));
        }
        counts_.resize(std::max<size_t>(counts_.size(), device + 1));
        counts_[device]++;
    }

    std::vector<uint64_t> counts_;
    Drops drops_;
};

// The call stacks, each written once: the caller, and behind it the calls of Python.
class Frames {
public:
    Frames(PickleWriter &pickle, const CallSites &sites) : pickle_(pickle), sites_(sites) {}

    void write(uint32_t site) {
        numbers_.resize(std::max<size_t>(numbers_.size(), site + 1), unknown);
        if (numbers_[site] != unknown) {
            pickle_.again(numbers_[site]);
            return;
        }
        pickle_.open_list();
        if (site != 0) {
            write_frames(parts_of(sites_.text(site)));
        }
        pickle_.close_list();
        numbers_[site] = pickle_.keep();
    }

private:
    static constexpr uint32_t unknown = ~uint32_t(0);

    void write_frames(const CallSite &site) {
        write_frame(site.function, site.file, 0);
        for (const PythonCall &call : site.calls) {
            uint64_t line = 0;
            std::from_chars(call.line.data(), call.line.data() + call.line.size(), line);
            write_frame(call.function, call.file, line);
        }
    }
    void write_frame(const std::string &function, const std::string &file, uint64_t line) {
        pickle_.open_dictionary();
        pickle_.word("name");
        pickle_.text(function);
        pickle_.word("filename");
        pickle_.text(file);
        pickle_.entry("line", line);
        pickle_.close_dictionary();
    }

    PickleWriter &pickle_;
    const CallSites &sites_;
    std::vector<uint32_t> numbers_; // in the pickle
};

// Writes the events of one device.
class DeviceTrace : public TimelineVisitor {
public:
    DeviceTrace(PickleWriter &pickle, Frames &frames, uint64_t device, uint64_t left_off)
        : pickle_(pickle), frames_(frames), device_(device), left_off_(left_off) {}

    void allocated(const LiveBlock &block, const Moment &moment) override {
        if (is_next(block.device, block.memory)) {
            for (const char *const action : {"segment_alloc", "alloc"}) {
                write(action, block, block.stream, moment);
            }
        }
    }
    void freed(const LiveBlock &block, uint64_t stream, const Moment &moment) override {
        if (is_next(block.device, block.memory)) {
            for (const char *const action : {"free_requested", "free_completed", "segment_free"}) {
                write(action, block, stream, moment);
            }
        }
    }
    void failed(const LogCall &call, const Moment &moment) override {
        if (is_next(call.device, Memory::device)) {
            begin("oom", moment);
            pickle_.entry("device_free", moment.free);
            end(call.size, call.stream, moment);
        }
    }

private:
    bool is_next(uint64_t device, Memory memory) {
        if (device != device_ || memory != Memory::device) {
            return false;
        }
        if (++seen_ > left_off_ && seen_ % part_events == 0) {
            pickle_.next_part();
        }
        return seen_ > left_off_;
    }

    void write(const char *action, const LiveBlock &block, uint64_t stream, const Moment &moment) {
        begin(action, moment);
        pickle_.entry("addr", block.address);
        end(block.size, stream, moment);
    }

    void begin(const char *action, const Moment &moment) {
        pickle_.open_dictionary();
        pickle_.entry("action", action);
        pickle_.entry("time_us", moment.time / 1000);
    }

    void end(uint64_t size, uint64_t stream, const Moment &moment) {
        pickle_.entry("size", size);
        pickle_.word("stream");
        pickle_.signed_number(static_cast<int64_t>(stream));
        pickle_.word("frames");
        frames_.write(moment.site);
        pickle_.close_dictionary();
    }

    PickleWriter &pickle_;
    Frames &frames_;
    const uint64_t device_, left_off_;
    uint64_t seen_ = 0;
};

class SnapshotWriter {
public:
    SnapshotWriter(Timeline &timeline, const CallSites &sites, uint64_t last, Output &output)
        : timeline_(timeline), last_(last), pickle_(output), frames_(pickle_, sites) {}

    SnapshotTotals write() {
        timeline_.visit(census_);
        totals_.drops = census_.drops();
        pickle_.open_dictionary();
        pickle_.word("device_traces");
        write_traces();
        pickle_.word("segments");
        write_segments();
        pickle_.close_dictionary();
        pickle_.finish();
        return totals_;
    }

private:
    void write_traces() {
        pickle_.open_list();
        for (uint64_t device = 0; device < census_.counts().size(); device++) {
            const uint64_t events = census_.counts()[device];
            const uint64_t left_off = events - std::min(events, last_);
            totals_.events += events - left_off;
            totals_.left_off += left_off;
            pickle_.open_list();
            if (events != 0) {
                DeviceTrace trace(pickle_, frames_, device, left_off);
                timeline_.visit(trace);
            }
            pickle_.close_list();
        }
        pickle_.close_list();
    }

    void write_segments() {
        pickle_.open_list();
        for (const LiveBlock &block : timeline_.live()) {
            if (block.memory == Memory::device) {
                write_segment(block);
                totals_.live++;
            }
        }
        pickle_.close_list();
    }

    void write_segment(const LiveBlock &block) {
        pickle_.open_dictionary();
        pickle_.entry("device", block.device);
        pickle_.entry("address", block.address);
        for (const char *const size :
             {"total_size", "allocated_size", "active_size", "requested_size"}) {
            pickle_.entry(size, block.size);
        }
        pickle_.word("stream");
        pickle_.signed_number(static_cast<int64_t>(block.stream));
        pickle_.entry("segment_type", "large");
        pickle_.word("is_expandable");
        pickle_.boolean(false);
        pickle_.word("frames");
        frames_.write(block.site);
        pickle_.word("blocks");
        pickle_.open_list();
        write_block(block);
        pickle_.close_list();
        pickle_.close_dictionary();
    }

    void write_block(const LiveBlock &block) {
        pickle_.open_dictionary();
        pickle_.entry("address", block.address);
        for (const char *const size : {"size", "requested_size"}) {
            pickle_.entry(size, block.size);
        }
        pickle_.entry("state", "active_allocated");
        pickle_.word("frames");
        frames_.write(block.site);
        pickle_.close_dictionary();
    }

    Timeline &timeline_;
    const uint64_t last_;
    PickleWriter pickle_;
    Frames frames_;
    Census census_;
    SnapshotTotals totals_;
};

} // namespace

SnapshotTotals export_snapshot(Timeline &timeline, const CallSites &sites, uint64_t last,
                               Output &output) {
    return SnapshotWriter(timeline, sites, last, output).write();
}

} // namespace emm::tool
