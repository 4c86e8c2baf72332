#pragma once

#include <emm/emm.h>

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

namespace emm::observe {

// Writes one line where EMM_LOG says ("level" or "level:file"; warnings and errors on standard
// error if it is unset). A file is a regular one or a device; it is appended to, and not waited
// for. `level` is one of EMM_LOG_*. Never throws: a line that cannot be written is lost.
void log(int32_t level, std::string_view text) noexcept;
void log_formatted(int32_t level, fmt::string_view text, fmt::format_args values) noexcept;

// Several lines in one, which begins with the time; they are written where log() writes, whatever
// its level. Each has to be fit to be shown (observe/text.h). A callback gets them one by one, if
// standard error would have them otherwise.
void report(std::string_view text) noexcept;

// A line with values in it, as in fmt::format.
template <class... Values>
void log(int32_t level, fmt::format_string<Values...> text, Values &&...values) noexcept {
    log_formatted(level, text, fmt::make_format_args(values...));
}

// emm_exchange_log_callback and emm_exchange_log_level, with a level that there is.
emm_status set_log_callback(const emm_log_callback_info &next, emm_log_callback_info *ret_previous);
emm_status set_log_level(int32_t level, int32_t *ret_previous);

} // namespace emm::observe
