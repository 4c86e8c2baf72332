#include "statistics.h"

#include <algorithm>
#include <cmath>

namespace emm::tool {
namespace {

// The smallest value that at least `share` of all values do not exceed; `sorted` is not empty.
double nearest_rank(const std::vector<uint64_t> &sorted, double share) {
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    const size_t index = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
    return static_cast<double>(sorted[std::min(index, sorted.size() - 1)]);
}

} // namespace

Summary summarize(std::vector<uint64_t> &values) {
    Summary summary;
    if (values.empty()) {
        return summary;
    }
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const uint64_t value : values) {
        sum += static_cast<double>(value);
    }
    summary.mean = sum / static_cast<double>(values.size());
    summary.p50 = nearest_rank(values, 0.5);
    summary.p99 = nearest_rank(values, 0.99);
    summary.p999 = nearest_rank(values, 0.999);
    return summary;
}

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double rounded(double value) {
    return std::round(value * 10) / 10;
}

} // namespace emm::tool
