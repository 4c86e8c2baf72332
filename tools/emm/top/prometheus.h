#pragma once

#include "top/process.h"

#include <string_view>

namespace emm::tool::top {

// "text/plain; version=0.0.4": Prometheus's text exposition format.
extern const char *const prometheus_type;
std::string prometheus_text(const std::vector<Process> &processes);

// As the value of a label, between its quotes.
std::string escaped_label(std::string_view text);

} // namespace emm::tool::top
