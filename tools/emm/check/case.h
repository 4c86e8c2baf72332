#pragma once

#include <cstdint>
#include <exception>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace emm::tool::check {

// A library, and the texts of its options.
struct CheckedFile {
    std::string path;
    std::vector<std::optional<std::string>> option_texts;
};

// The plugin under test, as its loading has shown it, and how to check it.
struct CheckedPlugin : CheckedFile {
    std::string spec;
    std::vector<CheckedFile> layers; // from the plugin upwards
    uint64_t seed = 1;
    bool simulated = false;
    std::string mode; // the simulated driver's progress
};

// A requirement that was violated.
class Violation : public std::exception {
public:
    explicit Violation(std::string text) : text_(std::move(text)) {}
    const char *what() const noexcept override { return text_.c_str(); }

private:
    std::string text_;
};

// Why a case has nothing to say about this plugin.
class Skipped : public Violation {
public:
    using Violation::Violation;
};

template <class... Arguments>
void expect(bool kept, fmt::format_string<Arguments...> text, Arguments &&...arguments) {
    if (!kept) {
        throw Violation(fmt::format(text, std::forward<Arguments>(arguments)...));
    }
}

constexpr size_t mib = size_t(1) << 20;

// The needs of a case. If one is not met, the case is skipped, with its reason.
constexpr unsigned on_simulator = 1; // counts, faults and misuse are visible only there
constexpr unsigned every_mode = 2;   // runs once for each way in which pending work makes progress
constexpr unsigned two_devices = 4;

struct Case {
    const char *name;         // "plugin/what"
    const char *requirements; // their numbers in plugins/REQUIREMENTS.md, separated by a space
    const char *says;         // the statement that is true if it passes
    void (*run)(const CheckedPlugin &);
    unsigned needs = 0;
    const char *settings = ""; // for the simulated driver
};

// All of them, in the order in which they are reported: the file, the table and memory first.
const std::vector<Case> &cases();

} // namespace emm::tool::check
