// Settings of a command line, as NAME=NUMBER.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

struct Setting {
    const char *name;
    size_t *number;
};

// Carries out one NAME=NUMBER. Gives the number that it has set; throws for an unknown setting.
inline const size_t *set(const std::vector<Setting> &known, const char *text) {
    const char *const equals = std::strchr(text, '=');
    for (const Setting &setting : known) {
        if (equals && std::string(text, size_t(equals - text)) == setting.name) {
            *setting.number = std::strtoull(equals + 1, nullptr, 10);
            return setting.number;
        }
    }
    throw std::runtime_error(std::string("no setting: ") + text);
}
