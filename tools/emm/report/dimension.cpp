#include "report/dimension.h"

#include "table.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fmt/format.h>
#include <functional>

namespace emm::tool {
namespace {

Dimension by_site(const char *name, const History &history, std::vector<std::string> labels,
                  const std::vector<uint32_t> &of_site) {
    Dimension dimension{name, std::move(labels), {}};
    dimension.of.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        dimension.of.push_back(of_site[block.site]);
    }
    return dimension;
}

Dimension by_names(const char *name, const History &history, const Names &names,
                   uint16_t Allocation::*member,
                   const std::function<std::string(const std::string &)> &label_of) {
    Dimension dimension{name, {}, {}};
    for (size_t i = 0; i <= names.size(); i++) { // the last: names beyond the limit
        dimension.labels.push_back(label_of(names.text(static_cast<uint16_t>(i))));
    }
    dimension.of.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        dimension.of.push_back(std::min<uint32_t>(block.*member, names.size()));
    }
    return dimension;
}

constexpr size_t most_exact_sizes = 200;

// By their bytes at the step, largest first.
std::vector<uint64_t> leading_sizes(const History &history, uint32_t step) {
    std::unordered_map<uint64_t, uint64_t> bytes;
    for (const Allocation &block : history.blocks) {
        if (is_live(block, step)) {
            bytes[block.size] += block.size;
        }
    }
    std::vector<std::pair<uint64_t, uint64_t>> sizes(bytes.begin(), bytes.end());
    const size_t count = std::min(most_exact_sizes, sizes.size());
    std::partial_sort(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(count), sizes.end(),
                      [](const auto &one, const auto &other) {
                          return one.second != other.second ? one.second > other.second
                                                            : one.first > other.first;
                      });
    std::vector<uint64_t> leading;
    for (size_t i = 0; i < count; i++) {
        leading.push_back(sizes[i].first);
    }
    return leading;
}

} // namespace

Dimension by_library(const History &history, const CallSites &sites) {
    Labels labels;
    std::vector<uint32_t> numbers;
    for (uint32_t site = 0; site < sites.size(); site++) {
        numbers.push_back(labels.number_of(shown_label(parts_of(sites.text(site)).file)));
    }
    return by_site("library", history, labels.take(), numbers);
}

Dimension by_caller(const History &history, const Callers &callers) {
    return by_site("caller", history, callers.labels, callers.of);
}

Dimension by_tag(const History &history, const CallSites &sites) {
    Labels labels;
    std::vector<uint32_t> numbers;
    for (uint32_t site = 0; site < sites.size(); site++) {
        numbers.push_back(labels.number_of(tag_label(parts_of(sites.text(site)))));
    }
    return by_site("tag", history, labels.take(), numbers);
}

Dimension by_lifetime(const History &history) {
    Dimension dimension{"lifetime",
                        {"never freed", "dropped, not freed", "over 50 % of the time",
                         "10 to 50 % of the time", "1 to 10 % of the time",
                         "under 1 % of the time"},
                        {}};
    const size_t steps = history.steps.size();
    const double length =
        steps == 0 ? 0 : static_cast<double>(history.time_of(steps - 1) - history.time_of(0));
    dimension.of.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        const double lived = static_cast<double>(block.end - block.begin);
        dimension.of.push_back(block.end == never            ? 0
                               : block.dropped != Drop::none ? 1
                               : lived >= length / 2         ? 2
                               : lived >= length / 10        ? 3
                               : lived >= length / 100       ? 4
                                                             : 5);
    }
    return dimension;
}

Dimension by_size(const History &history, uint32_t step) {
    Dimension dimension{"size", {}, {}};
    std::unordered_map<uint64_t, uint32_t> exact;
    const std::vector<uint64_t> leading = leading_sizes(history, step);
    std::unordered_map<std::string, int> times;
    for (const uint64_t size : leading) {
        times[in_bytes(size)]++;
    }
    for (const uint64_t size : leading) {
        exact[size] = static_cast<uint32_t>(dimension.labels.size());
        const std::string text = in_bytes(size);
        dimension.labels.push_back(times[text] == 1 ? text : fmt::format("{} B", size));
    }
    const auto first_class = static_cast<uint32_t>(dimension.labels.size());
    for (int power = 0; power < 64; power++) {
        dimension.labels.push_back("from " + in_bytes(uint64_t(1) << power));
    }
    dimension.of.reserve(history.blocks.size());
    for (const Allocation &block : history.blocks) {
        const auto found = exact.find(block.size);
        const auto power = static_cast<uint32_t>(std::bit_width(block.size | 1) - 1);
        dimension.of.push_back(found != exact.end() ? found->second : first_class + power);
    }
    return dimension;
}

Dimension by_stream(const History &history) {
    return by_names("stream", history, history.streams, &Allocation::stream,
                    [](const std::string &text) { return "stream " + text; });
}

Dimension by_thread(const History &history) {
    return by_names("thread", history, history.threads, &Allocation::thread,
                    [](const std::string &text) { return "thread " + text; });
}

Dimension by_pool(const History &history, const Recorded &recorded) {
    return by_names(
        "pool", history, recorded.contexts, &Allocation::context, [&](const std::string &text) {
            const auto named = recorded.pools.find(text);
            return named == recorded.pools.end() ? "context " + text : shown_label(named->second);
        });
}

} // namespace emm::tool
