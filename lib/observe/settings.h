#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The values that emm's variables take, and the complaints about others. All functions are pure;
// environment.h reads the variables.
namespace emm::observe {

// The words for EMM_LOG_OFF and on.
inline constexpr std::array<std::string_view, 5> level_words{"off", "error", "warn", "info",
                                                             "debug"};

// "expected on or off, found 'yes'; it is on". "" for a valid or empty value, and for variables
// that name a file or a plugin.
std::string complaint_about(std::string_view variable, std::string_view value);

// "is no variable of emm; did you mean 'EMM_PLUGIN'?" for a name that is close to a variable's
// name; "" for variables of emm and for all other names.
std::string complaint_about_name(std::string_view variable);

// Every variable that changes emm's behaviour, the most used first.
const std::vector<std::string> &variables();

// The variables that take words or a number, except those whose reader warns.
const std::vector<const char *> &settings();

// A number from 0 to `most` that takes the whole text.
template <typename Number> std::optional<Number> number_of(std::string_view text, Number most) {
    Number number{};
    const char *const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last || text.front() == '-' || !(number <= most)) {
        return std::nullopt;
    }
    return number;
}

} // namespace emm::observe
