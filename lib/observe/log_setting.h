#pragma once

#include <emm/emm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace emm::observe {

// For each destination, the least urgent level, EMM_LOG_*, that it gets. Aligned as a whole, so
// that clang 14 reads both at once without a library call.
struct alignas(8) LogLevels {
    int32_t place;    // EMM_LOG's file, or standard error
    int32_t callback; // the application's
};

// EMM_LOG outranks the application's levels. If the application takes the lines over, standard
// error gets none, unless EMM_LOG asks for them.
constexpr LogLevels log_levels(std::optional<int32_t> environment, int32_t application,
                               std::optional<int32_t> callback) {
    return {environment.value_or(callback ? EMM_LOG_OFF : application),
            callback.value_or(EMM_LOG_OFF)};
}

// The content of EMM_LOG.
struct LogSetting {
    std::optional<int32_t> level; // EMM_LOG_*; empty: the variable is unset
    std::string file;             // "": standard error
    std::string complaint;        // names a value that the variable does not take
};

// Pure, except that the process's id replaces %p.
LogSetting read_log_setting(std::string_view text);

} // namespace emm::observe
