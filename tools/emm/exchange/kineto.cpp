#include "exchange/kineto.h"

#include "exchange/conversion.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

namespace emm::tool {
namespace {

constexpr uint64_t longest_token = uint64_t(64) << 20;
constexpr size_t deepest = 512;
constexpr uint64_t gpu_types[] = {1, 6, 12}; // PyTorch's numbers for CUDA, HIP and XPU
constexpr size_t most_memory_events = size_t(1) << 26;

// A text of JSON as the parser reads it, which keeps whole tokens in memory.
class JsonText {
public:
    explicit JsonText(const KinetoTrace::Source &source) : source_(source), buffer_(1 << 16) {}

    bool at_end() {
        if (at_ == filled_) {
            before_ += filled_;
            at_ = 0;
            filled_ = source_(buffer_.data(), buffer_.size());
        }
        return filled_ == 0;
    }
    char current() const { return buffer_[at_]; }
    void advance() {
        at_++;
        if (offset() - token_at_ > longest_token) {
            throw Malformed(fmt::format("texts of at most {} bytes", longest_token),
                            "a longer one");
        }
    }
    uint64_t offset() const { return before_ + at_; }
    void token_ended() { token_at_ = offset(); }

private:
    const KinetoTrace::Source &source_;
    std::vector<char> buffer_;
    size_t at_ = 0, filled_ = 0;
    uint64_t before_ = 0, token_at_ = 0;
};

class JsonIterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char *;
    using reference = char;

    JsonIterator() = default; // the end
    explicit JsonIterator(JsonText &text) : text_(&text) {}
    char operator*() const {
        is_at_end();
        return text_->current();
    }
    JsonIterator &operator++() {
        text_->advance();
        return *this;
    }
    JsonIterator operator++(int) {
        JsonIterator before = *this;
        text_->advance();
        return before;
    }
    friend bool operator==(const JsonIterator &one, const JsonIterator &other) {
        return one.is_at_end() == other.is_at_end();
    }
    friend bool operator!=(const JsonIterator &one, const JsonIterator &other) {
        return !(one == other);
    }

private:
    bool is_at_end() const { return !text_ || text_->at_end(); }

    JsonText *text_ = nullptr;
};

// A number of an event. Fractions are marked, so that they can be refused.
struct JsonNumber {
    double value = 0;
    uint64_t magnitude = 0;
    bool is_there = false, is_negative = false, is_whole = false;
};

// Takes the parser's events. An event of the trace lies in the array `traceEvents`, or in an array
// that is the whole text.
class ChromeTraceReader {
public:
    ChromeTraceReader(JsonText &text, std::vector<KinetoTrace::MemoryEvent> &events)
        : text_(text), events_(events) {}

    uint64_t offset() const { return text_.offset(); }

    bool null() { return scalar(); }
    bool boolean(bool) { return scalar(); }
    bool number_integer(int64_t value) {
        const auto bits = static_cast<uint64_t>(value);
        return number(
            {static_cast<double>(value), value < 0 ? 0 - bits : bits, true, value < 0, true});
    }
    bool number_unsigned(uint64_t value) {
        return number({static_cast<double>(value), value, true, false, true});
    }
    bool number_float(double value, const std::string &) {
        return number({value, 0, true, std::signbit(value), false});
    }
    bool string(const std::string &value) {
        if (is_event() && key_ == "name") {
            is_memory_ = value == "[memory]";
        }
        return scalar();
    }
    bool binary(std::vector<uint8_t> &) { return scalar(); }
    bool key(const std::string &name) {
        if (name.size() < 32) {
            key_ = name;
        } else {
            key_.clear(); // no key of interest
        }
        text_.token_ended();
        return true;
    }
    bool start_object(size_t) {
        open(false);
        if (is_event()) {
            is_memory_ = false;
            time_ = thread_ = bytes_ = address_ = total_ = device_ = type_ = {};
        }
        return true;
    }
    bool start_array(size_t) {
        open(true);
        is_timeline_ = is_timeline_ || (array_depth_ == 1 && depth_ == 2);
        if (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents")) {
            array_depth_ = depth_;
        }
        return true;
    }
    bool end_object() {
        if (is_event() && is_memory_) {
            take_event();
        }
        depth_--;
        text_.token_ended();
        return true;
    }
    bool end_array() {
        if (depth_ == array_depth_) {
            array_depth_ = 0;
            has_events_ = true;
        }
        depth_--;
        text_.token_ended();
        return true;
    }
    bool parse_error(size_t, const std::string &, const nlohmann::json::exception &) {
        throw Malformed("JSON that is whole", "something else");
    }

    bool has_events() const { return has_events_; }

    // Why the trace has no allocations of a GPU.
    Malformed lack() const {
        return is_timeline_
                   ? Malformed("the trace that torch.profiler's export_chrome_trace writes",
                               "the memory timeline of export_memory_timeline")
                   : Malformed("[memory] events of a GPU, which torch.profiler records with "
                               "profile_memory=True",
                               has_memory_ ? "those of other devices alone" : "none");
    }

private:
    bool is_event() const { return array_depth_ != 0 && depth_ == array_depth_ + 1; }
    bool is_argument() const {
        return array_depth_ != 0 && depth_ == array_depth_ + 2 && in_arguments_;
    }
    bool scalar() {
        text_.token_ended();
        return true;
    }
    void open(bool is_array) {
        if (++depth_ > deepest) {
            throw Malformed(fmt::format("at most {} containers in each other", deepest),
                            "one more");
        }
        if (array_depth_ != 0 && depth_ == array_depth_ + 2) {
            in_arguments_ = !is_array && key_ == "args";
        }
        text_.token_ended();
    }
    bool number(const JsonNumber &value) {
        if (is_event()) {
            (key_ == "ts" ? time_ : key_ == "tid" ? thread_ : other_) = value;
        } else if (is_argument()) {
            (key_ == "Bytes"             ? bytes_
             : key_ == "Addr"            ? address_
             : key_ == "Total Allocated" ? total_
             : key_ == "Device Id"       ? device_
             : key_ == "Device Type"     ? type_
                                         : other_) = value;
        }
        return scalar();
    }
    static uint64_t whole(const JsonNumber &number, const char *what) {
        if (!number.is_there || !number.is_whole || number.is_negative) {
            throw Malformed(fmt::format("a whole number for {} of [memory]", what),
                            !number.is_there   ? "none"
                            : !number.is_whole ? "a fraction"
                                               : "a negative one");
        }
        return number.magnitude;
    }
    void take_event() {
        has_memory_ = true;
        if (!type_.is_there || type_.is_negative ||
            std::find(std::begin(gpu_types), std::end(gpu_types), type_.magnitude) ==
                std::end(gpu_types) ||
            (bytes_.is_whole && bytes_.magnitude == 0)) {
            return; // host memory
        }
        if (!bytes_.is_there || !bytes_.is_whole) {
            throw Malformed("a whole number for Bytes of [memory]",
                            bytes_.is_there ? "a fraction" : "none");
        }
        if (!time_.is_there || !(time_.value >= 0) || time_.value > 1e18) {
            throw Malformed("a time in microseconds for ts of [memory]", "none");
        }
        if (events_.size() == most_memory_events) {
            throw Malformed(fmt::format("at most {} events of memory", most_memory_events),
                            "one more");
        }
        const bool has_address = address_.is_there;
        events_.push_back(
            {time_.value, thread_.magnitude, has_address ? whole(address_, "Addr") : 0,
             bytes_.magnitude, total_.is_there ? whole(total_, "Total Allocated") : 0,
             static_cast<uint32_t>(whole(device_, "Device Id")), bytes_.is_negative, has_address});
    }

    JsonText &text_;
    std::vector<KinetoTrace::MemoryEvent> &events_;
    size_t depth_ = 0, array_depth_ = 0;
    std::string key_;
    bool is_memory_ = false, in_arguments_ = false, has_events_ = false;
    bool has_memory_ = false, is_timeline_ = false;
    JsonNumber time_, thread_, bytes_, address_, total_, device_, type_, other_;
};

} // namespace

KinetoTrace::KinetoTrace(const Source &source, std::string name, std::optional<uint64_t> device) {
    JsonText text(source);
    ChromeTraceReader reader(text, events_);
    try {
        nlohmann::json::sax_parse(JsonIterator(text), JsonIterator(), &reader);
        if (!reader.has_events()) {
            throw Malformed("traceEvents of a Chrome trace", "none");
        }
        if (events_.empty()) {
            throw reader.lack();
        }
    } catch (const Malformed &malformed) {
        throw bad_file(name, fmt::format("byte {}", reader.offset()), malformed);
    }
    std::stable_sort(events_.begin(), events_.end(),
                     [](const auto &one, const auto &other) { return one.time < other.time; });
    std::set<uint64_t> devices;
    for (const MemoryEvent &event : events_) {
        devices.insert(event.device);
    }
    try {
        device_ = choose_device({devices.begin(), devices.end()}, device);
    } catch (const Malformed &malformed) {
        throw bad_file(name, "", malformed);
    }
    match_by_size();
}

// Old versions of PyTorch write no addresses.
void KinetoTrace::match_by_size() {
    std::unordered_map<uint64_t, std::vector<uint64_t>> live; // by size
    uint64_t next = 0;
    for (MemoryEvent &event : events_) {
        if (event.device != device_ || event.has_address) {
            continue;
        }
        is_matched_by_size_ = true;
        std::vector<uint64_t> &blocks = live[event.size];
        if (event.is_free && !blocks.empty()) {
            event.address = blocks.back();
            blocks.pop_back();
        } else {
            event.address = next++;
            if (!event.is_free) {
                blocks.push_back(event.address);
            }
        }
    }
}

uint64_t KinetoTrace::bytes_before() const {
    const auto first =
        std::find_if(events_.begin(), events_.end(),
                     [this](const MemoryEvent &event) { return event.device == device_; });
    const uint64_t before =
        first->is_free ? first->total + first->size : first->total - first->size;
    return first->total == 0 || (!first->is_free && first->total < first->size) ? 0 : before;
}

void KinetoTrace::visit(const Visit &visit) {
    for (const MemoryEvent &event : events_) {
        if (event.device == device_) {
            visit({static_cast<uint64_t>(event.time), event.thread, 0,
                   event.is_free ? Op::free : Op::alloc, event.address, event.size});
        }
    }
}

} // namespace emm::tool
