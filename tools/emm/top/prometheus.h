#pragma once

#include "top/process.h"

#include <string_view>

namespace emm::tool::top {

// Prometheus's text exposition format.
std::string prometheus_text(const std::vector<Process> &processes);

// As the value of a label, between its quotes.
std::string escaped_label(std::string_view text);

} // namespace emm::tool::top
