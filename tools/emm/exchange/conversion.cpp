#include "exchange/conversion.h"

#include "observe/events/rows.h"
#include "trace/builder.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <unordered_map>
#include <unordered_set>

namespace emm::tool {
namespace {

constexpr std::string_view trace_header = "time,thread,stream,op,id,size\n";

void append_number(std::string &text, uint64_t number, char separator) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, static_cast<size_t>(end - digits));
    text += separator;
}

constexpr uint64_t no_block_address = ~uint64_t(0);

// The blocks that are live when the recording begins. Bytes without blocks become one block.
std::vector<RecordedBlock> blocks_before(Recording &recording) {
    std::unordered_set<uint64_t> live, seen;
    std::vector<RecordedBlock> before;
    recording.visit([&](const RecordedEvent &event) {
        if (event.op == Op::mark || event.size == 0) {
            return;
        }
        const bool is_new = seen.insert(event.address).second;
        if (event.op == Op::alloc) {
            live.insert(event.address);
        } else if (live.erase(event.address) == 0 && is_new) {
            before.push_back({event.address, event.size, event.stream, 0});
        }
    });
    for (const RecordedBlock &block : recording.live_in_the_end()) {
        if (block.size != 0 && seen.insert(block.address).second) {
            before.push_back(block);
        }
    }
    uint64_t bytes = 0;
    for (const RecordedBlock &block : before) {
        bytes += block.size;
    }
    if (recording.bytes_before() > bytes) {
        before.push_back({no_block_address, recording.bytes_before() - bytes, 0, 0});
    }
    return before;
}

// Follows the blocks of a recording by their addresses.
class BlockFollower {
public:
    explicit BlockFollower(RecordingVisitor &visitor) : visitor_(visitor) {}

    void begin(const std::vector<RecordedBlock> &before) {
        for (const RecordedBlock &block : before) {
            const RecordedEvent event = {.stream = block.stream,
                                         .op = Op::alloc,
                                         .address = block.address,
                                         .size = block.size,
                                         .site = block.site};
            allocate(event, 0); // by the thread of the first event
            result_.live_before++;
            result_.live_before_bytes += block.size;
        }
        result_.allocations = 0; // those of the recording
    }

    void add(RecordedEvent event) {
        move_clock(event.time);
        event.time = clock_;
        if (event.op == Op::mark) {
            visitor_.marked(event, {marks_++, number_of(threads_, event.thread), 0});
        } else if (event.size == 0) {
            return; // takes no memory
        } else if (event.op == Op::alloc) {
            allocate(event, number_of(threads_, event.thread));
        } else {
            release(event);
        }
    }

    Conversion result() {
        result_.threads = std::max<uint64_t>(threads_.size(), result_.live_before > 0);
        result_.streams = streams_.size();
        return result_;
    }

private:
    struct Live {
        uint64_t id, size;
    };

    static uint64_t number_of(std::unordered_map<uint64_t, uint64_t> &numbers, uint64_t name) {
        return numbers.try_emplace(name, numbers.size()).first->second;
    }

    void move_clock(uint64_t time) {
        first_time_ = first_time_.value_or(time);
        clock_ = std::max(clock_, time - std::min(time, *first_time_));
    }

    void allocate(const RecordedEvent &event, uint64_t thread) {
        if (live_.contains(event.address)) {
            result_.missed_frees++;
            release(event);
        }
        live_[event.address] = {next_id_, event.size};
        if (__builtin_add_overflow(live_bytes_, event.size, &live_bytes_)) {
            throw Malformed("live blocks of less than 2^64 bytes", "more");
        }
        result_.peak_live_bytes = std::max(result_.peak_live_bytes, live_bytes_);
        result_.allocations++;
        visitor_.allocated(event, {next_id_++, thread, number_of(streams_, event.stream)});
    }

    void release(RecordedEvent event) {
        const auto found = live_.find(event.address);
        if (found == live_.end()) {
            result_.stray_frees++;
            return;
        }
        const Live block = found->second;
        live_.erase(found);
        live_bytes_ -= block.size;
        result_.frees++;
        event.size = block.size;
        const uint64_t thread = number_of(threads_, event.thread);
        visitor_.freed(event, {block.id, thread, number_of(streams_, event.stream)});
    }

    RecordingVisitor &visitor_;
    Conversion result_;
    std::optional<uint64_t> first_time_;
    uint64_t clock_ = 0, next_id_ = 0, live_bytes_ = 0, marks_ = 0;
    std::unordered_map<uint64_t, Live> live_; // by address
    std::unordered_map<uint64_t, uint64_t> threads_, streams_;
};

class TraceWriter : public RecordingVisitor {
public:
    explicit TraceWriter(Output &output) : output_(output) { output_.write(trace_header); }

    void allocated(const RecordedEvent &event, const Place &place) override {
        write(event, place, Op::alloc, event.size);
    }
    void freed(const RecordedEvent &event, const Place &place) override {
        write(event, place, Op::free, event.size);
    }
    void marked(const RecordedEvent &event, const Place &place) override {
        write(event, place, Op::mark, 0);
    }

private:
    void write(const RecordedEvent &event, const Place &place, Op op, uint64_t size) {
        row_.clear();
        for (const uint64_t number : {event.time, place.thread, place.stream}) {
            append_number(row_, number, ',');
        }
        row_ += name_of(op);
        row_ += ',';
        append_number(row_, place.id, ',');
        append_number(row_, size, '\n');
        output_.write(row_);
    }

    Output &output_;
    std::string row_;
};

// Figures that a recording of another tool does not tell are 0.
class LogWriter : public RecordingVisitor {
public:
    LogWriter(const Recording &recording, Output &output) : recording_(recording), output_(output) {
        output_.write(observe::Rows::header);
    }

    void allocated(const RecordedEvent &event, const Place &) override {
        live_++;
        write("Alloc", event);
    }
    void freed(const RecordedEvent &event, const Place &) override {
        live_--;
        write("Free", event);
    }
    void marked(const RecordedEvent &event, const Place &) override {
        if (event.is_failure) {
            write("Alloc Failure", event);
        }
    }

private:
    void write(const char *type, const RecordedEvent &event) {
        const std::string time =
            fmt::format("{}.{:06}000", event.time / 1'000'000, event.time % 1'000'000);
        output_.write(fmt::format("{},{},{:#x},{},{},{},0,{},{},{},0.000000000,\"", type,
                                  recording_.device(), event.address, event.stream, event.size,
                                  event.free, live_, time, time));
        for (const char letter : recording_.sites().text(event.site)) {
            output_.write(letter == '"' ? "\"\"" : std::string_view(&letter, 1));
        }
        output_.write("\",0\n");
    }

    const Recording &recording_;
    Output &output_;
    uint64_t live_ = 0;
};

} // namespace

const CallSites &Recording::sites() const {
    static const CallSites none;
    return none;
}

Conversion go_through(Recording &recording, RecordingVisitor &visitor,
                      const std::function<void()> &report) {
    BlockFollower blocks(visitor);
    blocks.begin(blocks_before(recording));
    uint64_t events = 0;
    recording.visit([&](const RecordedEvent &event) {
        blocks.add(event);
        if (++events % 4096 == 0) {
            report();
        }
    });
    return blocks.result();
}

Conversion convert(Recording &recording, Output &output, const std::function<void()> &report) {
    TraceWriter writer(output);
    return go_through(recording, writer, report);
}

Conversion convert_to_log(Recording &recording, Output &output,
                          const std::function<void()> &report) {
    LogWriter writer(recording, output);
    return go_through(recording, writer, report);
}

namespace {

std::string listed(const std::vector<uint64_t> &devices) {
    constexpr size_t most = 16;
    std::string text;
    for (size_t i = 0; i < std::min(devices.size(), most); i++) {
        text += (i == 0 ? "" : ", ") + std::to_string(devices[i]);
    }
    return text + (devices.size() > most ? ", ..." : "");
}

} // namespace

uint64_t choose_device(const std::vector<uint64_t> &devices, std::optional<uint64_t> chosen) {
    if (devices.empty()) {
        throw Malformed("allocations of device memory", "none");
    }
    if (!chosen && devices.size() > 1) {
        throw Malformed("--device with one of the devices " + listed(devices), "none");
    }
    if (chosen && std::find(devices.begin(), devices.end(), *chosen) == devices.end()) {
        throw Malformed("--device with one of the devices " + listed(devices),
                        std::to_string(*chosen));
    }
    return chosen.value_or(devices.front());
}

} // namespace emm::tool
