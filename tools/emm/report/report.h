#pragma once

#include "report/options.h"

namespace emm::tool {

// `emm report`: writes the page. Returns the exit status; throws Failure.
int run_report(const ReportOptions &options);

} // namespace emm::tool
