#include "report/changes.h"

#include "report/dimension.h"
#include "report/histograms.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

constexpr size_t most_changes = 200;

struct Totals {
    uint64_t peak = 0, left = 0, allocations = 0;
};

using TotalsByName = std::map<std::string, std::pair<Totals, Totals>>; // before, now

bool has_callers(const Recorded &recorded) {
    return recorded.is_log && recorded.sites.size() > 1;
}

void add_totals(const Recorded &recorded, bool by_callers, TotalsByName &all,
                Totals std::pair<Totals, Totals>::*side) {
    const History &history = recorded.histories.front();
    const uint32_t peak = peak_of(history).step;
    const Dimension dimension =
        by_callers ? by_caller(history, recorded.sites) : by_size(history, peak);
    for (size_t i = 0; i < history.blocks.size(); i++) {
        const Allocation &block = history.blocks[i];
        Totals &totals = all[dimension.labels[dimension.of[i]]].*side;
        totals.peak += is_live(block, peak) ? block.size : 0;
        totals.left += block.last_step == no_step ? block.size : 0;
        totals.allocations++;
    }
}

uint64_t difference(uint64_t one, uint64_t other) {
    return one > other ? one - other : other - one;
}

} // namespace

Json changes_json(const std::string &name_before, const Recorded &before, const Recorded &now) {
    const bool by_callers = has_callers(before) && has_callers(now);
    TotalsByName totals;
    add_totals(before, by_callers, totals, &std::pair<Totals, Totals>::first);
    add_totals(now, by_callers, totals, &std::pair<Totals, Totals>::second);
    std::vector<std::pair<std::string, std::pair<Totals, Totals>>> rows(totals.begin(),
                                                                        totals.end());
    std::stable_sort(rows.begin(), rows.end(), [](const auto &one, const auto &other) {
        const auto order = [](const auto &row) {
            const auto &[was, is] = row.second;
            return std::pair(difference(was.peak, is.peak), difference(was.left, is.left));
        };
        return order(one) > order(other);
    });
    Json list = Json::array();
    for (size_t i = 0; i < std::min(rows.size(), most_changes); i++) {
        const auto &[was, is] = rows[i].second;
        list.push_back({{"name", rows[i].first},
                        {"peak_bytes", {was.peak, is.peak}},
                        {"left_bytes", {was.left, is.left}},
                        {"allocations", {was.allocations, is.allocations}}});
    }
    const auto pair_of = [&](auto figure) {
        return Json{figure(before.histories.front()), figure(now.histories.front())};
    };
    return {{"before", name_before},
            {"by", by_callers ? "caller" : "size"},
            {"peak_live_bytes", pair_of([](const auto &one) { return peak_of(one).bytes; })},
            {"left_bytes", pair_of([](const auto &one) { return left_of(one).bytes; })},
            {"rows", list}};
}

} // namespace emm::tool
