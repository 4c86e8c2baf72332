#pragma once

#include <string_view>

namespace emm::tool {

// The page as the build has put it together out of page/, in front of its data and behind them.
std::string_view page_before_data();
std::string_view page_behind_data();

} // namespace emm::tool
