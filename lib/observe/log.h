#pragma once

#include <emm/emm.h>

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

namespace emm::observe {

// Writes one line to EMM_LOG's destination ("level" or "level:file"; if unset, warnings and errors
// on standard error). A file is a regular file or a device; lines are appended, without waiting.
// `level` is one of EMM_LOG_*. Never throws: a line that cannot be written is lost.
void log(int32_t level, std::string_view text) noexcept;
void log_formatted(int32_t level, fmt::string_view text, fmt::format_args values) noexcept;

// Writes several lines as one entry with one time, to log()'s destination, even if the log is off.
// Each line must be fit to be shown (observe/text.h). If a callback replaces standard error, it
// gets the lines one by one.
void report(std::string_view text) noexcept;

// A line with values, as in fmt::format.
template <class... Values>
void log(int32_t level, fmt::format_string<Values...> text, Values &&...values) noexcept {
    log_formatted(level, text, fmt::make_format_args(values...));
}

// emm_exchange_log_callback and emm_exchange_log_level; the level is valid.
emm_status set_log_callback(const emm_log_callback_info &next, emm_log_callback_info *ret_previous);
emm_status set_log_level(int32_t level, int32_t *ret_previous);

} // namespace emm::observe
