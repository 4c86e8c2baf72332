#include "observe/events/module.h"

#include "observe/library_name.h"
#include "observe/process.h"

#include <charconv>
#include <fmt/format.h>
#include <link.h>

namespace emm::observe {
namespace {

struct Search {
    uint64_t address;
    std::optional<Module> found;
};

int visit(dl_phdr_info *info, size_t, void *data) {
    Search &search = *static_cast<Search *>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        const uint64_t begin = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && search.address - begin < segment.p_memsz) {
            search.found =
                Module{begin, begin + segment.p_memsz, info->dlpi_addr, library_name(*info)};
            return 1;
        }
    }
    return 0;
}

bool take_number(std::string_view &line, uint64_t &ret_number) {
    const auto [stopped, error] =
        std::from_chars(line.data(), line.data() + line.size(), ret_number, 16);
    if (error != std::errc() || stopped == line.data() + line.size() || *stopped != ' ') {
        return false;
    }
    line.remove_prefix(static_cast<size_t>(stopped - line.data()) + 1);
    return true;
}

// A path may have line ends.
std::string escaped(std::string_view path) {
    std::string text;
    for (const char letter : path) {
        text += letter == '\n' ? "\\n" : letter == '\\' ? "\\\\" : std::string(1, letter);
    }
    return text;
}

std::string unescaped(std::string_view text) {
    std::string path;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_escape = text[i] == '\\' && i + 1 < text.size();
        i += is_escape ? 1 : 0;
        path += is_escape && text[i] == 'n' ? '\n' : text[i];
    }
    return path;
}

} // namespace

std::optional<Module> find_module(uint64_t address) {
    Search search = {address, std::nullopt};
    dl_iterate_phdr(visit, &search);
    if (search.found && search.found->path.empty()) {
        search.found->path = program_path();
    }
    return search.found;
}

std::string to_line(const Module &module) {
    return fmt::format("{:x} {:x} {:x} {}\n", module.begin, module.end, module.base,
                       escaped(module.path));
}

std::optional<Module> take_module(std::string_view &text) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Module module;
    if (!take_number(line, module.begin) || !take_number(line, module.end) ||
        !take_number(line, module.base)) {
        return std::nullopt;
    }
    module.path = unescaped(line);
    return module;
}

} // namespace emm::observe
