#pragma once

#include <emm/emm.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace emm::observe {

// The words for EMM_LOG_OFF and on.
inline constexpr std::array<std::string_view, 5> level_words{"off", "error", "warn", "info",
                                                             "debug"};

// The least urgent level, EMM_LOG_*, that each place of the log gets.
struct LogLevels {
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

} // namespace emm::observe
