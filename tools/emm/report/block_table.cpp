#include "report/block_table.h"

#include "observe/callers/python_frames.h"
#include "report/page.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

// The smallest listed size: at most `most` blocks have this size or more.
uint64_t least_listed(const History &history, size_t most) {
    if (history.blocks.size() <= most) {
        return 0;
    }
    std::vector<uint64_t> sizes;
    sizes.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        sizes.push_back(block.size);
    }
    const auto place = sizes.begin() + static_cast<ptrdiff_t>(most);
    std::nth_element(sizes.begin(), place, sizes.end(), std::greater<>());
    return *place + 1;
}

uint64_t lowest_address(const History &history) {
    uint64_t lowest = std::numeric_limits<uint64_t>::max();
    for (const Allocation &block : history.blocks) {
        lowest = std::min(lowest, block.address);
    }
    return lowest;
}

std::vector<std::string> texts_of(const Names &names) {
    std::vector<std::string> texts;
    for (size_t i = 0; i <= names.size(); i++) { // the last: names beyond the limit
        texts.push_back(names.text(static_cast<uint16_t>(i)));
    }
    return texts;
}

// Each property of a block as a number. The beginning counts from the beginning of the block
// before; the end counts from the block's own beginning. 0 events: the block is live to the last
// event. 0 nanoseconds as well: it was never freed; otherwise its free may be behind the page's
// part of the recording.
class BlockColumns {
public:
    explicit BlockColumns(uint64_t lowest) : lowest_(lowest) {}

    void add(const Allocation &block) {
        event_.add(block.first_step - step_);
        events_.add(block.last_step == no_step ? 0 : block.last_step - block.first_step);
        begin_.add(block.begin - time_);
        lived_.add(block.end == never ? 0 : block.end - block.begin);
        size_.add(block.size);
        address_.add(block.address - lowest_);
        site_.add(block.site);
        stream_.add(block.stream);
        freed_on_.add(block.freed_on);
        thread_.add(block.thread);
        pool_.add(block.context);
        dropped_.add(static_cast<uint64_t>(block.dropped));
        step_ = block.first_step;
        time_ = block.begin;
    }

    Json json() const {
        return {{"event", event_.text()},   {"events", events_.text()},
                {"begin", begin_.text()},   {"lived", lived_.text()},
                {"size", size_.text()},     {"address", address_.text()},
                {"site", site_.text()},     {"stream", stream_.text()},
                {"thread", thread_.text()}, {"freed_on", freed_on_.text()},
                {"pool", pool_.text()},     {"dropped", dropped_.text()}};
    }

private:
    const uint64_t lowest_;
    uint64_t step_ = 0, time_ = 0;
    Column event_, events_, begin_, lived_, size_, address_, site_, stream_, freed_on_, thread_,
        pool_, dropped_;
};

enum class FrameKind : uint8_t { compiled, python, own }; // own: Python of the program itself

// The texts for a frame: short in a list, and in full.
struct FrameTexts {
    std::string label, full;
    FrameKind kind;
};

std::vector<FrameTexts> frames_of(const std::string &text) {
    const CallSite site = parts_of(text);
    std::vector<FrameTexts> frames;
    if (!site.function.empty()) {
        frames.push_back(
            {compiled_caller(site), text.substr(0, text.find('\t')), FrameKind::compiled});
    }
    for (const PythonCall &call : site.calls) {
        const bool has_place = !call.file.empty() && call.file != "??";
        frames.push_back({text_of(call),
                          has_place ? fmt::format("{}:{} ({})", call.file, call.line, call.function)
                                    : call.function,
                          call.is_compiled()                        ? FrameKind::compiled
                          : observe::is_installed_python(call.file) ? FrameKind::python
                                                                    : FrameKind::own});
    }
    return frames;
}

} // namespace

void Column::add(uint64_t number) {
    if (bytes_.empty()) {
        first_ = number;
    }
    is_constant_ = is_constant_ && number == first_;
    for (; number >= 0x80; number >>= 7) {
        bytes_.push_back(static_cast<uint8_t>(number | 0x80));
    }
    bytes_.push_back(static_cast<uint8_t>(number));
    first_bytes_ = first_bytes_ == 0 ? bytes_.size() : first_bytes_;
}

std::string Column::text() const {
    const auto end = bytes_.begin() + static_cast<ptrdiff_t>(first_bytes_);
    return in_base64(is_constant_ ? std::vector<uint8_t>(bytes_.begin(), end) : bytes_);
}

Json block_table_json(const History &history, const std::vector<std::string> &pools, bool is_log,
                      size_t most) {
    const uint64_t least = least_listed(history, most), lowest = lowest_address(history);
    BlockColumns columns(lowest);
    size_t count = 0;
    for (const Allocation &block : history.blocks) {
        if (block.size >= least) {
            columns.add(block);
            count++;
        }
    }
    return {{"count", count},
            {"left_off", history.blocks.size() - count},
            {"least_size", least},
            {"events", history.steps.size()},
            {"begin", history.begin},
            {"first_address", is_log ? Json(fmt::format("{:#x}", lowest)) : Json()},
            {"columns", columns.json()},
            {"streams", texts_of(history.streams)},
            {"threads", texts_of(history.threads)},
            {"pools", pools}};
}

Json calls_json(const CallSites &sites, const Callers &callers) {
    Labels texts;
    Json frames = Json::array(), caller = Json::array(), library = Json::array(),
         tag = Json::array();
    for (uint32_t number = 0; number < sites.size(); number++) {
        Json labels = Json::array();
        for (const FrameTexts &frame : frames_of(sites.text(number))) {
            labels.push_back({texts.number_of(shown_label(frame.label)),
                              texts.number_of(shown_label(frame.full)), frame.kind});
        }
        frames.push_back(std::move(labels));
        caller.push_back(texts.number_of(callers.text(number)));
        const CallSite site = parts_of(sites.text(number));
        library.push_back(texts.number_of(shown_label(site.file)));
        tag.push_back(texts.number_of(tag_label(site)));
    }
    return {{"frames", frames},
            {"caller", caller},
            {"library", library},
            {"tag", tag},
            {"texts", texts.take()}};
}

} // namespace emm::tool
