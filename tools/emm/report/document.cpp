#include "report/document.h"

#include "report/address_map.h"
#include "report/block_table.h"
#include "report/groups.h"
#include "report/histograms.h"
#include "report/page.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

constexpr size_t finest = 2048; // parts of an axis: some more than a screen has columns
constexpr size_t map_cells = 2048, most_moments = 160;
constexpr size_t most_leading_sizes = 15, most_failures = 100;
constexpr size_t most_listed = size_t(1) << 23; // blocks: 16 million events

std::string in_hex(uint64_t address) {
    return fmt::format("{:#x}", address);
}

template <class Row, class Value> Json column_json(const std::vector<Row> &rows, Value Row::*of) {
    Json column = Json::array();
    for (const Row &row : rows) {
        column.push_back(row.*of);
    }
    return column;
}

Json buckets_json(const std::vector<Bucket> &buckets) {
    return {{"first_event", column_json(buckets, &Bucket::first_step)},
            {"last_event", column_json(buckets, &Bucket::last_step)},
            {"first_time", column_json(buckets, &Bucket::first_time)},
            {"last_time", column_json(buckets, &Bucket::last_time)},
            {"low", column_json(buckets, &Bucket::low)},
            {"high", column_json(buckets, &Bucket::high)},
            {"end", column_json(buckets, &Bucket::end)},
            {"high_event", column_json(buckets, &Bucket::high_step)}};
}

Json extents_json(const std::vector<Extent> &extents) {
    return {{"low", column_json(extents, &Extent::low)},
            {"high", column_json(extents, &Extent::high)},
            {"end", column_json(extents, &Extent::end)}};
}

// `end` is null if it equals `high`.
Json stacks_json(const GroupSet &groups, const std::vector<Stack> &stacks) {
    const auto count = static_cast<ptrdiff_t>(groups.labels.size());
    Json high = Json::array(), end = Json::array();
    for (const Stack &stack : stacks) {
        high.push_back(std::vector<uint64_t>(stack.high.begin(), stack.high.begin() + count));
        end.push_back(stack.end == stack.high ? Json()
                                              : Json(std::vector<uint64_t>(
                                                    stack.end.begin(), stack.end.begin() + count)));
    }
    return {{"name", groups.name},   {"labels", groups.labels},
            {"bytes", groups.bytes}, {"blocks", groups.blocks},
            {"high", high},          {"end", end}};
}

Json bars_json(const std::vector<Bar> &bars) {
    Json all = Json::array();
    for (const Bar &bar : bars) {
        all.push_back({bar.from, bar.blocks, bar.bytes, bar.peak_bytes});
    }
    return all;
}

Json map_json(const History &history, const std::vector<uint64_t> &addresses,
              const GroupSet &groups, const std::vector<uint32_t> &chosen) {
    const AddressRow row(history, addresses, map_cells);
    Json starts = Json::array(), moments = Json::array();
    for (size_t cell = 0; cell < row.cells(); cell++) {
        starts.push_back(in_hex(row.address_of(cell)));
    }
    for (const MapMoment &moment :
         map_moments(history, addresses, groups, row, moments_of(history, most_moments, chosen))) {
        moments.push_back({{"event", moment.step},
                           {"time", moment.time},
                           {"live", moment.live},
                           {"cells", in_base64(moment.cells)}});
    }
    return {{"cell_bytes", row.cell_bytes()},
            {"bytes", row.bytes()},
            {"starts", starts},
            {"cuts", row.cuts()},
            {"labels", groups.labels},
            {"by", groups.name},
            {"moments", moments}};
}

// One history, with the questions that it can answer.
class Subject {
public:
    Subject(const Recorded &recorded, const Callers &callers, const History &history)
        : recorded_(recorded), callers_(callers), history_(history), peak_(peak_of(history)),
          buckets_(buckets_of(history, finest)) {
        ask();
        for (const Dimension &dimension : dimensions_) {
            groups_.push_back(groups_of(history_, dimension, peak_.step));
        }
    }

    Json figures() const { return figures_of(history_, peak_, groups_); }

    Json drawn() const {
        Json stacks = Json::array();
        for (const GroupSet &groups : groups_) {
            stacks.push_back(stacks_json(groups, stacks_of(history_, groups, buckets_)));
        }
        return {{"buckets", buckets_json(buckets_)},
                {"groups", stacks},
                {"group", leading().name},
                {"lifetimes", bars_json(lifetimes_of(history_, peak_.step))},
                {"unfreed", bars_json({unfreed_of(history_, peak_.step)}).front()},
                {"dropped", bars_json({dropped_of(history_, peak_.step)}).front()},
                {"sizes", bars_json(sizes_of(history_, peak_.step))},
                {"leading_sizes",
                 bars_json(leading_sizes_of(history_, peak_.step, most_leading_sizes))},
                {"table", block_table_json(history_, pool_labels_, recorded_.is_log, most_listed)},
                {"map", own_map()}};
    }

    Json replay_figures(const Replayed &replayed) const {
        return figures_of(replayed, history_, peak_);
    }

    Json replay_drawn(const Replayed &replayed) const {
        if (replayed.problem) {
            return nullptr;
        }
        const auto most = std::max_element(replayed.reserved.begin(), replayed.reserved.end());
        const auto step = static_cast<uint32_t>(most - replayed.reserved.begin());
        return {{"reserved", extents_json(extents_of(replayed.reserved, buckets_))},
                {"samples", replayed.samples},
                {"map", replayed.is_recorded ? Json()
                                             : map_json(history_, replayed.addresses, leading(),
                                                        {peak_.step, step})}};
    }

private:
    void ask() {
        if (recorded_.is_log && recorded_.sites.size() > 1) {
            dimensions_.push_back(by_library(history_, recorded_.sites));
            dimensions_.push_back(by_caller(history_, callers_));
            if (callers_
                    .has_python) { // a line tells more than the library through which Python called
                std::swap(dimensions_[0], dimensions_[1]);
            }
        }
        dimensions_.push_back(by_lifetime(history_));
        dimensions_.push_back(by_size(history_, peak_.step));
        if (history_.streams.size() > 1) {
            dimensions_.push_back(by_stream(history_));
        }
        if (history_.threads.size() > 1) {
            dimensions_.push_back(by_thread(history_));
        }
        Dimension pools = by_pool(history_, recorded_);
        pool_labels_ = pools.labels;
        if (std::adjacent_find(pools.of.begin(), pools.of.end(), std::not_equal_to<>()) !=
            pools.of.end()) {
            dimensions_.push_back(std::move(pools));
        }
        Dimension tags = by_tag(history_, recorded_.sites);
        if (tags.labels.size() > 1) {
            dimensions_.push_back(std::move(tags));
        }
    }

    const GroupSet &leading() const { return groups_[leading_of(groups_)]; }

    // A trace has no addresses.
    Json own_map() const {
        return recorded_.is_log
                   ? map_json(history_, addresses_of(history_), leading(), {peak_.step})
                   : Json();
    }

    const Recorded &recorded_;
    const Callers &callers_;
    const History &history_;
    const Peak peak_;
    const std::vector<Bucket> buckets_;
    std::vector<Dimension> dimensions_;
    std::vector<GroupSet> groups_;
    std::vector<std::string> pool_labels_;
};

Json failures_json(const Recorded &recorded, const Callers &callers) {
    Json all = Json::array();
    for (const Mark &mark : recorded.marks) {
        if (mark.is_failure && all.size() < most_failures) {
            all.push_back({{"time", mark.time},
                           {"what", mark.text},
                           {"size", mark.size},
                           {"free", mark.free ? Json(*mark.free) : Json()},
                           {"site", mark.site},
                           {"caller", callers.text(mark.site)}});
        }
    }
    return all;
}

Json marks_json(const Recorded &recorded) {
    Json all = Json::array();
    for (const Mark &mark : recorded.marks) {
        all.push_back({mark.time, mark.text, mark.is_failure});
    }
    return all;
}

} // namespace

Json document_of(const std::string &name, const Recorded &recorded,
                 const std::vector<Replayed> &replays, const std::function<void(double)> &report) {
    Json figures = {{"input", name},
                    {"kind", recorded.kind},
                    {"events", recorded.rows},
                    {"begin_ns", recorded.begin},
                    {"end_ns", recorded.end},
                    {"is_part", !recorded.part.is_all()},
                    {"failures", recorded.failure_count},
                    {"left_off", recorded.left_off},
                    {"memory", Json::array()},
                    {"replays", Json::array()}};
    const Callers callers(recorded.sites);
    Json memory = Json::array(), drawn_replays = Json::array();
    for (size_t i = 0; i < recorded.histories.size(); i++) {
        report(static_cast<double>(i) / static_cast<double>(recorded.histories.size()));
        const Subject subject(recorded, callers, recorded.histories[i]);
        figures["memory"].push_back(subject.figures());
        memory.push_back(subject.drawn());
        for (const Replayed &replayed : i == 0 ? replays : std::vector<Replayed>()) {
            figures["replays"].push_back(subject.replay_figures(replayed));
            drawn_replays.push_back(subject.replay_drawn(replayed));
        }
    }
    return {{"figures", figures},
            {"memory", memory},
            {"replays", drawn_replays},
            {"failures", failures_json(recorded, callers)},
            {"calls", calls_json(recorded.sites, callers)},
            {"marks", marks_json(recorded)},
            {"mark_count", recorded.mark_count}};
}

} // namespace emm::tool
