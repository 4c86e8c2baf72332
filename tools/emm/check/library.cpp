// The plugin's file: read, not run.
#include "check/elf_file.h"
#include "check/plan.h"

#include <emm/plugin.h>

namespace emm::tool::check {
namespace {

bool begins(const std::string &text, const char *with) {
    return text.rfind(with, 0) == 0;
}

// Symbols that the linker and the sanitizers add.
bool is_toolchain(const std::string &name) {
    return name == "_init" || name == "_fini" || name == "_edata" || name == "_end" ||
           name == "__bss_start" || begins(name, "__asan") || begins(name, "__ubsan") ||
           begins(name, "__odr_asan") || begins(name, "__tsan");
}

void exports(const CheckedPlugin &plugin) {
    bool has_entry = false;
    size_t count = 0;
    std::string others;
    for (const auto &symbol : ElfFile(plugin.path).exported()) {
        has_entry = has_entry || symbol.name == EMM_PLUGIN_ENTRY_SYMBOL;
        const bool fine = symbol.name == EMM_PLUGIN_ENTRY_SYMBOL || is_toolchain(symbol.name) ||
                          symbol.binding == STB_GNU_UNIQUE; // library/unique reports it
        count += !fine;
        others += fine || count > 5 ? "" : " " + symbol.name;
    }
    others += count > 5 ? fmt::format(" and {} more", count - 5) : "";
    expect(has_entry, "it does not export {}", EMM_PLUGIN_ENTRY_SYMBOL);
    expect(others.empty(),
           "besides its entry it exports{}: hide them (-fvisibility=hidden, a version script)",
           others);
}

void unique(const CheckedPlugin &plugin) {
    for (const auto &symbol : ElfFile(plugin.path).exported()) {
        expect(symbol.binding != STB_GNU_UNIQUE,
               "{} is a unique symbol: all libraries of the process share the first one that is "
               "loaded; hide it with a version script, or compile with -fno-gnu-unique",
               symbol.name);
    }
}

void dependencies(const CheckedPlugin &plugin) {
    for (const std::string &name : ElfFile(plugin.path).needed()) {
        for (const char *wrong : {"libcuda.", "libcudart.", "libnvidia-", "libemm."}) {
            expect(!begins(name, wrong),
                   "it links {}: the driver's functions come from host->driver, and emm's from "
                   "the table of services",
                   name);
        }
    }
    // A program that links libemm loads these with it; one that opens libemm with dlopen does not.
    for (const std::string &name : ElfFile(plugin.path).missing()) {
        expect(!begins(name, "emm_") && !begins(name, "cu"),
               "it needs {}, and no library that it links has that: the driver's functions come "
               "from host->driver, and emm's from the table of services",
               name);
    }
}

// glibc keeps 512 bytes for all libraries that a process opens and that ask for it.
void thread_storage(const CheckedPlugin &plugin) {
    const ElfFile file(plugin.path);
    constexpr uint64_t most = 64;
    expect(!file.has_flag(DF_STATIC_TLS) || file.thread_bytes() <= most,
           "it uses {} bytes of static thread-local storage, of which a process has little to give "
           "to what it loads later: expected at most {}, or none (-ftls-model=initial-exec)",
           file.thread_bytes(), most);
}

void stack(const CheckedPlugin &plugin) {
    const ElfFile file(plugin.path);
    expect(!file.wants_executable_stack(), "it makes the stacks of the process executable");
    expect(!file.has_flag(DF_TEXTREL) && !file.has_entry(DT_TEXTREL),
           "its code is not position-independent: it has text relocations");
}

} // namespace

std::vector<Case> library_cases() {
    return {
        {"library/exports", "EMM-P-01", "it exports its entry and nothing else", exports},
        {"library/unique", "EMM-P-02", "it has no unique symbols", unique},
        {"library/dependencies", "EMM-P-03", "it links neither CUDA nor libemm", dependencies},
        {"library/thread-storage", "EMM-P-04", "it needs next to no static thread-local storage",
         thread_storage},
        {"library/stack", "EMM-P-04", "it leaves stacks and code as they should be", stack},
    };
}

} // namespace emm::tool::check
