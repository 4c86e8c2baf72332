#include "observe/events/module.h"

#include "observe/file.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>
#include <vector>

namespace emm::observe {
namespace {

bool take_number(std::string_view &line, uint64_t &ret_number) {
    const auto [stopped, error] =
        std::from_chars(line.data(), line.data() + line.size(), ret_number, 16);
    if (error != std::errc() || stopped == line.data() + line.size() || *stopped != ' ') {
        return false;
    }
    line.remove_prefix(static_cast<size_t>(stopped - line.data()) + 1);
    return true;
}

// A path may contain line ends.
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

namespace {

// The file is read, not mapped, because truncating a mapped file would kill the process.
class ElfFile {
public:
    explicit ElfFile(const std::string &path) : file_(open_to_read(path, reason_)) {}

    bool read(uint64_t offset, void *bytes, size_t size) const {
        return file_ && pread(file_.number(), bytes, size, static_cast<off_t>(offset)) ==
                            static_cast<ssize_t>(size);
    }

    std::vector<Elf64_Shdr> sections() const {
        Elf64_Ehdr header;
        if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
            header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
            return {};
        }
        std::vector<Elf64_Shdr> all(header.e_shnum);
        return read(header.e_shoff, all.data(), all.size() * sizeof(Elf64_Shdr))
                   ? all
                   : std::vector<Elf64_Shdr>();
    }

private:
    std::string reason_; // why it could not be read
    const File file_;
};

bool holds(const Elf64_Sym &symbol, uint64_t address) {
    return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF &&
           address - symbol.st_value < symbol.st_size;
}

bool find_in(const ElfFile &file, const Elf64_Shdr &table, uint64_t address, Elf64_Sym &ret_found) {
    std::vector<Elf64_Sym> some(4096);
    const uint64_t count = table.sh_size / sizeof(Elf64_Sym);
    for (uint64_t done = 0; done < count; done += some.size()) {
        some.resize(std::min<uint64_t>(some.size(), count - done));
        if (!file.read(table.sh_offset + done * sizeof(Elf64_Sym), some.data(),
                       some.size() * sizeof(Elf64_Sym))) {
            return false;
        }
        const auto found = std::find_if(some.begin(), some.end(), [&](const Elf64_Sym &symbol) {
            return holds(symbol, address);
        });
        if (found != some.end()) {
            ret_found = *found;
            return true;
        }
    }
    return false;
}

std::string demangled(const char *name) {
    int failed = 0;
    char *text = abi::__cxa_demangle(name, nullptr, nullptr, &failed);
    std::string result = failed == 0 && text ? text : name;
    std::free(text);
    return result;
}

std::string name_of(const ElfFile &file, const Elf64_Shdr &strings, const Elf64_Sym &symbol) {
    char name[1024] = {};
    const uint64_t left = strings.sh_size - std::min<uint64_t>(symbol.st_name, strings.sh_size);
    return file.read(strings.sh_offset + symbol.st_name, name,
                     std::min<uint64_t>(left, sizeof name - 1))
               ? demangled(name)
               : "";
}

} // namespace

std::string symbol_at(const std::string &path, uint64_t address) {
    const ElfFile file(path);
    const std::vector<Elf64_Shdr> sections = file.sections();
    for (const uint32_t kind : {SHT_SYMTAB, SHT_DYNSYM}) {
        for (const Elf64_Shdr &table : sections) {
            Elf64_Sym found;
            if (table.sh_type != kind || table.sh_link >= sections.size() ||
                // The call is before its return address.
                !find_in(file, table, address - 1, found)) {
                continue;
            }
            const std::string name = name_of(file, sections[table.sh_link], found);
            return name.empty() ? "" : fmt::format("{}+{:#x}", name, address - found.st_value);
        }
    }
    return "";
}

} // namespace emm::observe
