#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::tool::top {

// A name at which a process says that it can be asked. Any process of any user can bind one.
struct Name {
    std::string text;        // without the zero byte in front
    int64_t claimed_pid = 0; // as the process sees itself, if the name is honest
};

// The names in a text like that of /proc/net/unix at which a process listens, each once.
std::vector<Name> names_in(std::string_view table);

} // namespace emm::tool::top
