#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::observe {

// The least urgent level, EMM_LOG_*, that each place of the log gets. Aligned as a whole, because
// clang 14 would have a library read both at once otherwise.
struct alignas(8) LogLevels {
    int32_t place;    // EMM_LOG's file, or standard error
    int32_t callback; // the application's
};

// EMM_LOG outranks what the application says. An application that takes the lines over finds none
// of them on standard error, unless EMM_LOG asks for that.
constexpr LogLevels log_levels(std::optional<int32_t> environment, int32_t application,
                               std::optional<int32_t> callback) {
    return {environment.value_or(callback ? EMM_LOG_OFF : application),
            callback.value_or(EMM_LOG_OFF)};
}

// What EMM_LOG says.
struct LogSetting {
    std::optional<int32_t> level; // EMM_LOG_*; none: it is unset
    std::string file;             // "": standard error
    std::string complaint;        // about a value that it does not take, with its name
};

// Pure, but for the process's id, which takes the place of %p.
LogSetting read_log_setting(std::string_view text);

} // namespace emm::observe
