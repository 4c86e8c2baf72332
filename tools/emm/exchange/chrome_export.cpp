#include "exchange/exports.h"

#include "json.h"
#include "table.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

constexpr std::array<const char *, 4> memory_names = {"device memory", "pinned memory",
                                                      "registered memory", "managed memory"};

std::string text_in_json(const std::string &text) {
    return dump(Json(text));
}

std::string name_of_stream(uint64_t stream) {
    return stream == ~uint64_t(0) ? "no stream"
           : stream == 0          ? "stream 0"
                                  : fmt::format("stream {:#x}", stream);
}

using EventCounts = std::map<uint64_t, uint64_t>; // by device

class EventCounter : public TimelineVisitor {
public:
    void allocated(const LiveBlock &block, const Moment &) override { counts[block.device]++; }
    void freed(const LiveBlock &block, uint64_t, const Moment &) override {
        counts[block.device]++;
    }
    void failed(const LogCall &call, const Moment &) override { counts[call.device]++; }
    void other(const LogCall &call, const Moment &) override { counts[call.device]++; }
    EventCounts counts;
};

class ChromeWriter : public TimelineVisitor {
public:
    ChromeWriter(const CallSites &sites, EventCounts left_off, Output &output)
        : sites_(sites), left_off_(std::move(left_off)), output_(output) {
        output_.write("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
    }

    void finish() { output_.write("\n]}\n"); }

    void allocated(const LiveBlock &block, const Moment &moment) override {
        if (is_left_off(block.device)) {
            before_[block.device][block.number] = {block, moment};
            live_[{block.device, block.memory}] += block.size;
            return;
        }
        totals_.allocations++;
        begin(block, moment);
        count(block, moment, block.size);
    }

    void freed(const LiveBlock &block, uint64_t stream, const Moment &moment) override {
        if (is_left_off(block)) {
            return;
        }
        totals_.frees++;
        const bool is_own = stream == block.stream;
        end(block, "freed",
            is_own ? "" : fmt::format(R"(, "freed on": "{}")", name_of_stream(stream)), moment);
    }

    void dropped(const LiveBlock &block, Drop drop, const Moment &moment) override {
        if (is_left_off(block)) {
            return;
        }
        totals_.drops.add(drop);
        end(block, "dropped", "", moment);
    }

    void failed(const LogCall &call, const Moment &moment) override {
        if (!is_left_off(call.device)) {
            totals_.failures++;
            tell(call, moment);
        }
    }

    void other(const LogCall &call, const Moment &moment) override {
        if (!is_left_off(call.device)) {
            tell(call, moment);
        }
    }

    const ChromeTotals &totals() const { return totals_; }

private:
    // Counts the event. After the last event that is left off, writes the live memory of that time.
    bool is_left_off(uint64_t device) {
        uint64_t &left = left_off_[device];
        if (left > 0) {
            left--;
            totals_.left_off++;
            return true;
        }
        if (const auto first = before_.extract(device)) {
            for (const auto &[number, block] : first.mapped()) {
                begin(block.first, block.second);
            }
        }
        return false;
    }
    bool is_left_off(const LiveBlock &block) {
        const bool is = is_left_off(block.device);
        if (is) {
            before_[block.device].erase(block.number);
            live_[{block.device, block.memory}] -= block.size;
        }
        return is;
    }

    void begin(const LiveBlock &block, const Moment &moment) {
        add(R"("ph": "b", "cat": "{}", "id2": {{"local": {}}}, {}, "name": {}, "args": {{"size": {}, )"
            R"("address": "{:#x}", "caller": {}}})",
            memory_names[static_cast<size_t>(block.memory)], block.number,
            at(process_of_stream(block.device, block.stream), moment.time), name_of(block),
            block.size, block.address, text_of(moment.site));
    }

    void tell(const LogCall &call, const Moment &moment) {
        add(R"("ph": "i", "s": "p", {}, "name": {}, "args": {{"size": {}, "caller": {}}})",
            at(process_of_device(call.device), moment.time), text_in_json(std::string(call.type)),
            call.size, text_of(moment.site));
    }

    template <class... Values> void add(fmt::format_string<Values...> format, Values &&...values) {
        line_.assign(is_first_ ? "\n{" : ",\n{");
        is_first_ = false;
        fmt::format_to(std::back_inserter(line_), format, std::forward<Values>(values)...);
        line_ += '}';
        output_.write(line_);
    }

    void end(const LiveBlock &block, const char *how, const std::string &more,
             const Moment &moment) {
        add(R"("ph": "e", "cat": "{}", "id2": {{"local": {}}}, {}, "name": {}, "args": {{"{} by": {}{}}})",
            memory_names[static_cast<size_t>(block.memory)], block.number,
            at(process_of_stream(block.device, block.stream), moment.time), name_of(block), how,
            text_of(moment.site), more);
        count(block, moment, uint64_t(0) - block.size);
    }

    static std::string at(uint64_t process, uint64_t time) {
        return fmt::format(R"("pid": {0}, "tid": {0}, "ts": {1}.{2:03})", process, time / 1000,
                           time % 1000);
    }

    // Slices of one name lie on tracks side by side: the caller's name, as far as it is known.
    const std::string &name_of(const LiveBlock &block) {
        names_.resize(sites_.size());
        std::string &name = names_[block.site];
        if (name.empty()) {
            const CallSite site = parts_of(sites_.text(block.site));
            const std::string file = site.file.substr(site.file.rfind('/') + 1);
            const bool has_function = site.function.rfind("0x", 0) != 0;
            const PythonCall *const call = own_call(site);
            name = text_in_json(block.site == 0 ? "allocation"
                                : call          ? emm::tool::text_of(*call)
                                : has_function  ? site.function
                                : file.empty()  ? site.function
                                                : file + "+" + site.function);
        }
        return name;
    }

    const std::string &text_of(uint32_t site) {
        texts_.resize(sites_.size());
        if (texts_[site].empty()) {
            texts_[site] = text_in_json(sites_.text(site));
        }
        return texts_[site];
    }

    void count(const LiveBlock &block, const Moment &moment, uint64_t change) {
        uint64_t &live = live_[{block.device, block.memory}];
        live += change;
        const uint64_t process = process_of_device(block.device);
        add(R"("ph": "C", {}, "name": "live {}", "args": {{"bytes": {}}})",
            at(process, moment.time), memory_names[static_cast<size_t>(block.memory)], live);
        if (block.memory == Memory::device && moment.total >= moment.free && moment.total != 0) {
            add(R"("ph": "C", {}, "name": "in use on the device", "args": {{"bytes": {}}})",
                at(process, moment.time), moment.total - moment.free);
        }
    }

    uint64_t process_of_device(uint64_t device) {
        return process({device, false, 0}, fmt::format("device {}", device));
    }

    uint64_t process_of_stream(uint64_t device, uint64_t stream) {
        process_of_device(device); // before its streams
        return process({device, true, stream},
                       fmt::format("device {}, {}", device, name_of_stream(stream)));
    }

    struct Process {
        uint64_t device;
        bool is_stream;
        uint64_t stream;
        auto operator<=>(const Process &) const = default;
    };

    uint64_t process(const Process &key, const std::string &name) {
        const auto [found, is_new] = processes_.try_emplace(key, processes_.size() + 1);
        if (is_new) {
            add(R"("ph": "M", "pid": {0}, "name": "process_name", "args": {{"name": "{1}"}})",
                found->second, name);
            add(R"("ph": "M", "pid": {0}, "name": "process_sort_index", )"
                R"("args": {{"sort_index": {0}}})",
                found->second);
        }
        return found->second;
    }

    const CallSites &sites_;
    EventCounts left_off_; // still to come, of each device
    using Live = std::map<uint64_t, std::pair<LiveBlock, Moment>>;
    std::map<uint64_t, Live> before_; // for each device: live memory, and events left off so far
    Output &output_;
    ChromeTotals totals_;
    bool is_first_ = true;
    std::string line_;
    std::vector<std::string> names_, texts_; // by call site
    std::map<std::pair<uint64_t, Memory>, uint64_t> live_;
    std::map<Process, uint64_t> processes_;
};

} // namespace

ChromeTotals export_chrome_trace(Timeline &timeline, const CallSites &sites, uint64_t last,
                                 Output &output) {
    EventCounter counter;
    if (last != ~uint64_t(0)) {
        timeline.visit(counter);
    }
    for (auto &[device, count] : counter.counts) {
        count -= std::min(count, last);
    }
    ChromeWriter writer(sites, std::move(counter.counts), output);
    timeline.visit(writer);
    writer.finish();
    return writer.totals();
}

} // namespace emm::tool
