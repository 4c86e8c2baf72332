#pragma once

#include <emm/emm.h>
#include <fmt/core.h>

#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emm::observe {

// A struct of emm.h with its size set and all else 0.
template <class Struct> constexpr Struct sized() noexcept {
    Struct made = {};
    made.struct_size = sizeof made;
    return made;
}

// The content of emm_last_error. The fields from `stage` on are for plugins that did not load; an
// empty text means that the field does not apply.
struct ErrorDetail {
    emm_status code = EMM_OK;
    int32_t driver_result = 0;
    std::string text = {}, stage = {}, path = {}, expected = {}, got = {}, hint = {};
    std::vector<std::string> tried = {};
    std::string report = {}; // JSON, as observe/memory_report.h makes it
};

// Makes `detail` the calling thread's last error; returns its code.
emm_status fail(ErrorDetail detail) noexcept;
emm_status fail(emm_status code, int32_t driver_result, std::string text) noexcept;
emm_status fail(emm_status code, int32_t driver_result, const char *text) noexcept;
emm_status fail_formatted(emm_status code, int32_t driver_result, fmt::string_view text,
                          fmt::format_args values) noexcept;

// A text with values, as in fmt::format. Without memory for the text, the code's own sentence is
// used. A value that the caller makes first, such as a std::string, may still throw.
template <class... Values>
emm_status fail(emm_status code, int32_t driver_result, fmt::format_string<Values...> text,
                Values &&...values) noexcept {
    return fail_formatted(code, driver_result, text, fmt::make_format_args(values...));
}

// Refuses a value that makes no sense.
emm_status refuse(std::string text) noexcept;
template <class... Values>
emm_status refuse(fmt::format_string<Values...> text, Values &&...values) noexcept {
    return fail_formatted(EMM_E_INVALID_VALUE, 0, text, fmt::make_format_args(values...));
}

// If `step` fails, returns its status from the surrounding function.
#define EMM_TRY(step)                                                                              \
    if (const emm_status emm_answer = (step); emm_answer < EMM_OK) [[unlikely]] {                  \
        return emm_answer;                                                                         \
    }

// Returns `function`'s answer. If it runs out of host memory, the error is `sentence`.
template <class Function> emm_status with_memory(const char *sentence, Function function) noexcept {
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return fail(EMM_E_OUT_OF_HOST_MEMORY, 0, sentence);
    }
}

const emm_error *last_error() noexcept;

// The recorded error, to be amended and recorded again.
ErrorDetail last_detail();

// Preserves the calling thread's last error for a scope that may overwrite it.
class Preserved {
public:
    Preserved() noexcept;
    ~Preserved();
    Preserved(const Preserved &) = delete;
    Preserved &operator=(const Preserved &) = delete;
    emm_status code() const { return detail_.code; }

private:
    ErrorDetail detail_;
    const bool by_plugin_;
};

// For a scope that runs code of the program, in a call whose result so far is `status`. If this is
// a failure, the code sees its description, but cannot replace it.
class PreservedFailure {
public:
    explicit PreservedFailure(emm_status status) noexcept;

private:
    std::optional<Preserved> said_;
};

// Implements emm_host.fail: the same, marked as the plugin's word on the error that it is about to
// return.
emm_status fail_by_plugin(emm_status code, int32_t driver_result, const char *text) noexcept;

// Marks the last error, which a service of the host made, as a plugin's word.
void make_plugin_word() noexcept;

// Whether the last error is a plugin's description that no failing call has used yet; marks it as
// used.
bool take_plugin_word() noexcept;

// Describes the status `code` of a plugin: keeps the plugin's own description if there is one, else
// says "`what`: " and the code's text.
emm_status describe(emm_status code, const char *what) noexcept;

} // namespace emm::observe
