#pragma once

#include <cstdint>
#include <vector>

namespace emm::tool {

struct Summary {
    double mean = 0, p50 = 0, p99 = 0, p999 = 0;
};

// Percentiles are values that occurred (nearest rank). Sorts `values`; all zeros for no values.
Summary summarize(std::vector<uint64_t> &values);

// The middle value, or the mean of the two in the middle; 0 for no values.
double median(std::vector<double> values);

// Rounded to one decimal, which is precise enough for nanoseconds.
double rounded(double value);

} // namespace emm::tool
