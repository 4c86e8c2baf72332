// The plugin's file: read, not run.
#include "check/case.h"
#include "check/plan.h"
#include "observe/read_write.h"

#include <emm/plugin.h>

#include <cstring>
#include <elf.h>

namespace emm::tool::check {
namespace {

// The view of a shared library that a dynamic linker has. Throws Violation if it cannot be read.
class ElfFile {
public:
    explicit ElfFile(const std::string &path);

    struct Symbol {
        std::string name;
        unsigned char type, binding;
    };
    std::vector<Symbol> exported() const;     // defined symbols, visible outside
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

// emm has loaded the library before, so it is for this machine.
ElfFile::ElfFile(const std::string &path) : bytes_(observe::text_of_file(path)) {
    expect(bytes_.size() >= sizeof(Elf64_Ehdr), "cannot read {}", path);
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

bool begins(const std::string &text, const char *with) {
    return text.rfind(with, 0) == 0;
}

// Symbols of the linker and the sanitizers.
bool is_toolchain(const std::string &name) {
    return name == "_init" || name == "_fini" || name == "_edata" || name == "_end" ||
           name == "__bss_start" || begins(name, "__asan") || begins(name, "__ubsan") ||
           begins(name, "__odr_asan") || begins(name, "__tsan");
}

// A requirement of each file: the plugin's and the layers'.
template <void (*check)(const std::string &path, const char *entry)>
void of_each(const CheckedPlugin &plugin) {
    check(plugin.path, EMM_PLUGIN_ENTRY_SYMBOL);
    for (const CheckedFile &layer : plugin.layers) {
        check(layer.path, EMM_LAYER_ENTRY_SYMBOL);
    }
}

void exports(const std::string &path, const char *entry) {
    bool has_entry = false;
    size_t count = 0;
    std::string others;
    for (const auto &symbol : ElfFile(path).exported()) {
        has_entry = has_entry || symbol.name == entry;
        const bool fine = symbol.name == entry || is_toolchain(symbol.name) ||
                          symbol.binding == STB_GNU_UNIQUE; // library/unique reports it
        count += !fine;
        others += fine || count > 5 ? "" : " " + symbol.name;
    }
    others += count > 5 ? fmt::format(" and {} more", count - 5) : "";
    expect(has_entry, "it does not export {}", entry);
    expect(others.empty(),
           "besides its entry it exports{}: hide them (-fvisibility=hidden, a version script)",
           others);
}

void unique(const std::string &path, const char *) {
    for (const auto &symbol : ElfFile(path).exported()) {
        expect(symbol.binding != STB_GNU_UNIQUE,
               "{} is a unique symbol: all libraries of the process share the first one that is "
               "loaded; hide it with a version script, or compile with -fno-gnu-unique",
               symbol.name);
    }
}

void dependencies(const std::string &path, const char *) {
    for (const std::string &name : ElfFile(path).needed()) {
        for (const char *wrong : {"libcuda.", "libcudart.", "libnvidia-", "libemm."}) {
            expect(!begins(name, wrong),
                   "it links {}: the driver's functions come from host->driver, and emm's from "
                   "the table of services",
                   name);
        }
    }
    // A program that links libemm loads the plugin with it; a program that opens libemm with dlopen
    // does not.
    for (const std::string &name : ElfFile(path).missing()) {
        expect(!begins(name, "emm_") && !begins(name, "cu"),
               "it needs {}, and no library that it links has that: the driver's functions come "
               "from host->driver, and emm's from the table of services",
               name);
    }
}

// glibc keeps 512 bytes for all libraries that a process opens and that ask for static thread
// storage.
void thread_storage(const std::string &path, const char *) {
    const ElfFile file(path);
    constexpr uint64_t most = 64;
    expect(!file.has_flag(DF_STATIC_TLS) || file.thread_bytes() <= most,
           "it uses {} bytes of static thread-local storage, of which a process has little to give "
           "to what it loads later: expected at most {}, or none (-ftls-model=initial-exec)",
           file.thread_bytes(), most);
}

void stack(const std::string &path, const char *) {
    const ElfFile file(path);
    expect(!file.wants_executable_stack(), "it makes the stacks of the process executable");
    expect(!file.has_flag(DF_TEXTREL) && !file.has_entry(DT_TEXTREL),
           "its code is not position-independent: it has text relocations");
}

} // namespace

std::vector<Case> library_cases() {
    return {
        {"library/exports", "EMM-P-01", "it exports its entry and nothing else", of_each<exports>},
        {"library/unique", "EMM-P-02", "it has no unique symbols", of_each<unique>},
        {"library/dependencies", "EMM-P-03", "it links neither CUDA nor libemm",
         of_each<dependencies>},
        {"library/thread-storage", "EMM-P-04", "it needs next to no static thread-local storage",
         of_each<thread_storage>},
        {"library/stack", "EMM-P-04", "it leaves stacks and code as they should be",
         of_each<stack>},
    };
}

} // namespace emm::tool::check
