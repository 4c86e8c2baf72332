#pragma once

#include <elf.h>

#include <string>
#include <vector>

namespace emm::tool::check {

// What a shared library shows to a dynamic linker. Throws Violation if it cannot be read.
class ElfFile {
public:
    explicit ElfFile(const std::string &path);

    struct Symbol {
        std::string name;
        unsigned char type, binding;
    };
    std::vector<Symbol> exported() const;     // defined symbols that it shows
    std::vector<std::string> missing() const; // undefined symbols that are not weak
    std::vector<std::string> needed() const;  // DT_NEEDED
    bool has_flag(Elf64_Xword flag) const;    // of DT_FLAGS
    bool has_entry(Elf64_Sxword tag) const;   // in the dynamic section
    uint64_t thread_bytes() const;            // of thread-local storage
    bool wants_executable_stack() const;

private:
    const Elf64_Ehdr &header() const;
    const Elf64_Shdr *section(Elf64_Word type) const;
    const Elf64_Phdr *segment(Elf64_Word type) const;
    template <class Entry> std::vector<Entry> entries(const Elf64_Shdr *section) const;
    std::string string_at(const Elf64_Shdr &owner, uint64_t offset) const;

    std::string bytes_;
};

} // namespace emm::tool::check
