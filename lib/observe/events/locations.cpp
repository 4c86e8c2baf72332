#include "observe/events/locations.h"

#include "observe/events/python_calls.h"
#include "observe/text.h"

#include <fmt/format.h>

namespace emm::observe {
namespace {

std::string as_field(const std::string &text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
        return text;
    }
    std::string quoted = "\"";
    for (const char letter : text) {
        quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    }
    return quoted + "\"";
}

} // namespace

void Locations::add(Module module) {
    modules_.push_back(std::move(module));
    known_.clear(); // an address may have been another module's
    known_of_python_.clear();
}

void Locations::add(std::string python_calls) {
    python_calls_.push_back(std::move(python_calls));
}

const std::string &Locations::of(uint64_t caller, uint32_t python) {
    if (python != 0 && python <= python_calls_.size()) {
        const auto [found, is_new] = known_of_python_.try_emplace({caller, python});
        if (is_new) {
            found->second = as_field(make(caller) + location_separator + python_calls_[python - 1]);
        }
        return found->second;
    }
    const auto [found, is_new] = known_.try_emplace(caller);
    if (is_new) {
        found->second = as_field(make(caller));
    }
    return found->second;
}

std::string Locations::make(uint64_t caller) const {
    for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
        if (module->holds(caller)) {
            const std::string symbol = symbol_at(module->path, caller - module->base);
            return one_line(fmt::format("{}+{:#x}{}", module->path, caller - module->base,
                                        symbol.empty() ? "" : " (" + symbol + ")"));
        }
    }
    return fmt::format("{:#x}", caller);
}

} // namespace emm::observe
