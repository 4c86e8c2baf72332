#include "exchange/conversion.h"

#include "trace/builder.h"

#include <algorithm>
#include <charconv>
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

// The blocks that are live when the recording begins. Bytes that it only counts are one block.
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
            before.push_back({event.address, event.size, event.stream});
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
        before.push_back({no_block_address, recording.bytes_before() - bytes, 0});
    }
    return before;
}

class TraceWriter {
public:
    explicit TraceWriter(Output &output) : output_(output) { output_.write(trace_header); }

    void begin(const std::vector<RecordedBlock> &before) {
        for (const RecordedBlock &block : before) {
            allocate({0, 0, block.stream, Op::alloc, block.address, block.size}, false);
            result_.live_before++;
            result_.live_before_bytes += block.size;
        }
    }

    void add(const RecordedEvent &event) {
        move_clock(event.time);
        if (event.op == Op::mark) {
            write(number_of(threads_, event.thread), 0, Op::mark, marks_++, 0);
        } else if (event.size == 0) {
            return; // takes no memory
        } else if (event.op == Op::alloc) {
            allocate(event, true);
        } else {
            release(event);
        }
    }

    Conversion result() {
        result_.threads = threads_.size();
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

    void allocate(const RecordedEvent &event, bool is_event) {
        const auto before = live_.find(event.address);
        if (before != live_.end()) {
            result_.missed_frees++;
            release(event);
        }
        live_[event.address] = {next_id_, event.size};
        live_bytes_ += event.size;
        result_.peak_live_bytes = std::max(result_.peak_live_bytes, live_bytes_);
        result_.allocations += is_event;
        write(number_of(threads_, event.thread), number_of(streams_, event.stream), Op::alloc,
              next_id_++, event.size);
    }

    void release(const RecordedEvent &event) {
        const auto found = live_.find(event.address);
        if (found == live_.end()) {
            result_.stray_frees++;
            return;
        }
        const Live block = found->second;
        live_.erase(found);
        live_bytes_ -= block.size;
        result_.frees++;
        write(number_of(threads_, event.thread), number_of(streams_, event.stream), Op::free,
              block.id, block.size);
    }

    void write(uint64_t thread, uint64_t stream, Op op, uint64_t id, uint64_t size) {
        row_.clear();
        for (const uint64_t number : {clock_, thread, stream}) {
            append_number(row_, number, ',');
        }
        row_ += name_of(op);
        row_ += ',';
        append_number(row_, id, ',');
        append_number(row_, size, '\n');
        output_.write(row_);
    }

    Output &output_;
    Conversion result_;
    std::string row_;
    std::optional<uint64_t> first_time_;
    uint64_t clock_ = 0, next_id_ = 0, live_bytes_ = 0, marks_ = 0;
    std::unordered_map<uint64_t, Live> live_; // by address
    std::unordered_map<uint64_t, uint64_t> threads_, streams_;
};

} // namespace

Conversion convert(Recording &recording, Output &output, const std::function<void()> &report) {
    TraceWriter writer(output);
    writer.begin(blocks_before(recording));
    uint64_t events = 0;
    recording.visit([&](const RecordedEvent &event) {
        writer.add(event);
        if (++events % 4096 == 0) {
            report();
        }
    });
    return writer.result();
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
