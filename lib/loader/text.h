// How the loader writes what it reads and says. The tool has it too: nothing here needs the rest of
// libemm.
#pragma once

#include <elf.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace emm::loader {

// How characters that separate the parts of a spec are written inside a part.
struct Escape {
    char character;
    std::string_view code;
};

inline constexpr Escape escapes[] = {{':', "%3A"}, {';', "%3B"}, {',', "%2C"},
                                     {'=', "%3D"}, {'%', "%25"}, {'+', "%2B"}};

// `text` as it is written in a spec: the inverse of reading one (spec.h).
std::string encode(std::string_view text);

// Where the plugin begins in "LAYER[:options]+...+PLUGIN[:options]", one spec of a list. A '+' ends
// a layer that has a bare name; behind a '/' in a name it is a character of the path:
// /opt/c++/x.so.
size_t find_plugin(std::string_view spec);

// How a sentence ends that tells where a plugin was looked for: " (tried A, B, C and 2 more)".
// "" if that was nowhere.
std::string tried_places(const std::vector<std::string> &tried);

// The name of an architecture by the e_machine of an ELF file.
#if defined(__x86_64__)
inline constexpr unsigned this_machine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr unsigned this_machine = EM_AARCH64;
#else
#error "add the ELF machine number of this architecture"
#endif

std::string machine_name(unsigned machine);

} // namespace emm::loader
