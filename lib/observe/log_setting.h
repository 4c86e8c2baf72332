#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::observe {

// What EMM_LOG says.
struct LogSetting {
    std::optional<int32_t> level; // EMM_LOG_*; none: it is unset
    std::string file;             // "": standard error
    std::string complaint;        // about a value that it does not take, with its name
};

// Pure, but for the process's id, which takes the place of %p.
LogSetting read_log_setting(std::string_view text);

} // namespace emm::observe
