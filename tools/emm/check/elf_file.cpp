#include "check/elf_file.h"

#include "check/case.h"

#include <cstdio>
#include <cstring>

namespace emm::tool::check {
namespace {

std::string read(const std::string &path) {
    std::string bytes;
    if (FILE *const file = fopen(path.c_str(), "rbe")) {
        char part[16384];
        for (size_t got = 0; (got = fread(part, 1, sizeof part, file)) > 0;) {
            bytes.append(part, got);
        }
        fclose(file);
    }
    return bytes;
}

} // namespace

// emm has loaded it before, so it is a library for this machine.
ElfFile::ElfFile(const std::string &path) : bytes_(read(path)) {
    expect(bytes_.size() >= sizeof(Elf64_Ehdr), "{} cannot be read", path);
    if (!section(SHT_DYNSYM) || !section(SHT_DYNAMIC)) {
        throw Skipped("the library has no section headers to read");
    }
}

const Elf64_Ehdr &ElfFile::header() const {
    return *reinterpret_cast<const Elf64_Ehdr *>(bytes_.data());
}

const Elf64_Shdr *ElfFile::section(Elf64_Word type) const {
    const uint64_t end = header().e_shoff + uint64_t(header().e_shnum) * sizeof(Elf64_Shdr);
    if (header().e_shoff == 0 || end > bytes_.size()) {
        return nullptr;
    }
    const auto *first = reinterpret_cast<const Elf64_Shdr *>(bytes_.data() + header().e_shoff);
    for (const auto *at = first; at != first + header().e_shnum; at++) {
        if (at->sh_type == type && at->sh_offset + at->sh_size <= bytes_.size()) {
            return at;
        }
    }
    return nullptr;
}

template <class Entry> std::vector<Entry> ElfFile::entries(const Elf64_Shdr *section) const {
    std::vector<Entry> found(section->sh_size / sizeof(Entry));
    std::memcpy(found.data(), bytes_.data() + section->sh_offset, found.size() * sizeof(Entry));
    return found;
}

std::string ElfFile::string_at(const Elf64_Shdr &owner, uint64_t offset) const {
    const auto *strings =
        reinterpret_cast<const Elf64_Shdr *>(bytes_.data() + header().e_shoff) + owner.sh_link;
    const uint64_t at = strings->sh_offset + offset;
    return at < bytes_.size() ? bytes_.c_str() + at : "";
}

std::vector<ElfFile::Symbol> ElfFile::exported() const {
    std::vector<Symbol> found;
    const Elf64_Shdr *table = section(SHT_DYNSYM);
    for (const auto &symbol : entries<Elf64_Sym>(table)) {
        const unsigned char binding = ELF64_ST_BIND(symbol.st_info);
        const unsigned char visibility = ELF64_ST_VISIBILITY(symbol.st_other);
        const bool seen = visibility == STV_DEFAULT || visibility == STV_PROTECTED;
        if (symbol.st_shndx != SHN_UNDEF && binding != STB_LOCAL && seen) {
            found.push_back({string_at(*table, symbol.st_name),
                             static_cast<unsigned char>(ELF64_ST_TYPE(symbol.st_info)), binding});
        }
    }
    return found;
}

std::vector<std::string> ElfFile::missing() const {
    std::vector<std::string> found;
    const Elf64_Shdr *table = section(SHT_DYNSYM);
    for (const auto &symbol : entries<Elf64_Sym>(table)) {
        if (symbol.st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL) {
            found.push_back(string_at(*table, symbol.st_name));
        }
    }
    return found;
}

std::vector<std::string> ElfFile::needed() const {
    std::vector<std::string> found;
    const Elf64_Shdr *dynamic = section(SHT_DYNAMIC);
    for (const auto &entry : entries<Elf64_Dyn>(dynamic)) {
        if (entry.d_tag == DT_NEEDED) {
            found.push_back(string_at(*dynamic, entry.d_un.d_val));
        }
    }
    return found;
}

bool ElfFile::has_flag(Elf64_Xword flag) const {
    for (const auto &entry : entries<Elf64_Dyn>(section(SHT_DYNAMIC))) {
        if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & flag)) {
            return true;
        }
    }
    return false;
}

bool ElfFile::has_entry(Elf64_Sxword tag) const {
    for (const auto &entry : entries<Elf64_Dyn>(section(SHT_DYNAMIC))) {
        if (entry.d_tag == tag) {
            return true;
        }
    }
    return false;
}

const Elf64_Phdr *ElfFile::segment(Elf64_Word type) const {
    const auto *first = reinterpret_cast<const Elf64_Phdr *>(bytes_.data() + header().e_phoff);
    for (const auto *at = first; at != first + header().e_phnum; at++) {
        if (at->p_type == type) {
            return at;
        }
    }
    return nullptr;
}

uint64_t ElfFile::thread_bytes() const {
    const Elf64_Phdr *storage = segment(PT_TLS);
    return storage ? storage->p_memsz : 0;
}

// Without this header the loader assumes an executable stack.
bool ElfFile::wants_executable_stack() const {
    const Elf64_Phdr *stack = segment(PT_GNU_STACK);
    return !stack || (stack->p_flags & PF_X) != 0;
}

} // namespace emm::tool::check
