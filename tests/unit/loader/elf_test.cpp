#include "support.h"

#include "loader/file.h"
#include "observe/file.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <tuple>

namespace emm::loader {
namespace {

using Row = std::tuple<std::string, std::string>;

TEST_CASE("a file that is no library for this machine is refused before it is mapped") {
    const auto [name, sentence] = GENERATE(
        Row{"empty", "the file is empty"}, Row{"text", "it is not an ELF file"},
        Row{"cut-in-header", "the file is truncated: expected at least 64 bytes, found 40 bytes"},
        Row{"cut-in-segments", "the file is truncated: expected at least "},
        Row{"class-32", "it was built for another architecture: expected a 64-bit library, found a "
                        "32-bit one"},
        Row{"big-endian", "expected a little-endian library, found another byte order"},
        Row{"object-file",
            "it is of the wrong kind: expected a shared library, found an object file (.o)"},
        Row{"no-segments", "its program headers are damaged: expected 56 bytes each, found 0 of 56 "
                           "bytes"},
        Row{"stray-dynamic", "its dynamic section is damaged: expected an address inside what is "
                             "loaded, found one outside"});
    const observe::ErrorDetail error = refused(fixture(name));
    CHECK(error.code == EMM_E_PLUGIN_UNLOADABLE);
    CHECK(error.stage == "elf");
    CHECK(error.path == fixture(name));
    CHECK(error.tried == std::vector<std::string>{fixture(name)});
    CHECK_THAT(error.text, ContainsSubstring("plugin " + fixture(name) + ": "));
    CHECK_THAT(error.text, ContainsSubstring(sentence));
}

TEST_CASE("another machine's library is refused, and both machines are named") {
    const observe::ErrorDetail error = refused(fixture("other-machine"));
    CHECK_THAT(error.text, ContainsSubstring("it was built for another architecture"));
    CHECK_THAT(error.expected + error.got, ContainsSubstring("x86-64"));
    CHECK_THAT(error.expected + error.got, ContainsSubstring("AArch64"));
}

TEST_CASE("a library without its section headers loads") {
    CHECK(loaded(fixture("cut-after-segments")).plugin->name == "good");
}

TEST_CASE("the GNU build id is read from the file") {
    const std::string &id = loaded(fixture("good")).plugin->build_id;
    CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(id.size() == 40);
}

TEST_CASE("a program is no shared library, and is told how to become one") {
    const observe::ErrorDetail error = refused("/proc/self/exe");
    CHECK(error.stage == "elf");
    CHECK_THAT(error.text, ContainsSubstring("it is of the wrong kind: expected a shared library, "
                                             "found an executable"));
    CHECK(error.hint == "link it with -shared");
}

// The file of a good plugin, to be damaged. It is checked without being loaded.
class Damaged {
public:
    Damaged() {
        std::ifstream file(fixture("good"), std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(file), {});
        REQUIRE(bytes.size() > sizeof(Elf64_Ehdr));
    }

    Elf64_Ehdr &header() { return *reinterpret_cast<Elf64_Ehdr *>(bytes.data()); }

    // The n-th segment of a type.
    Elf64_Phdr &segment(uint32_t type, int n = 0) {
        auto *all = reinterpret_cast<Elf64_Phdr *>(bytes.data() + header().e_phoff);
        for (int i = 0; i < header().e_phnum; ++i) {
            if (all[i].p_type == type && n-- == 0) {
                return all[i];
            }
        }
        throw std::runtime_error("the plugin has no such segment");
    }

    void retype_all(uint32_t type, uint32_t other) {
        auto *all = reinterpret_cast<Elf64_Phdr *>(bytes.data() + header().e_phoff);
        for (int i = 0; i < header().e_phnum; ++i) {
            all[i].p_type = all[i].p_type == type ? other : all[i].p_type;
        }
    }

    Elf64_Nhdr &build_id_note() {
        const size_t name = bytes.find(std::string("GNU\0", 4), header().e_phoff);
        for (size_t at = name; at != bytes.npos; at = bytes.find(std::string("GNU\0", 4), at + 1)) {
            auto &note = *reinterpret_cast<Elf64_Nhdr *>(bytes.data() + at - sizeof(Elf64_Nhdr));
            if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz == 20) {
                return note;
            }
        }
        throw std::runtime_error("the plugin has no build id");
    }

    emm_status check() {
        const Folder folder;
        std::string reason;
        const observe::File file =
            observe::open_to_read(folder.write("libemm-damaged.so", bytes), reason);
        REQUIRE(file);
        return check_elf(file.number(), "damaged", build_id);
    }

    // The sentence of the refusal.
    std::string refusal() {
        CHECK(check() == EMM_E_PLUGIN_UNLOADABLE);
        return observe::last_detail().text;
    }

    std::string bytes, build_id;
};

TEST_CASE("a refusal names the kind, class or machine that the file's header has") {
    const auto [type, kind] = GENERATE(table<Elf64_Half, std::string>(
        {{ET_EXEC, "found an executable"}, {ET_CORE, "found a core dump"}, {77, "found type 77"}}));
    Damaged other_kind;
    other_kind.header().e_type = type;
    CHECK_THAT(other_kind.refusal(), ContainsSubstring(kind));
    const auto [number, machine] =
        GENERATE(table<Elf64_Half, std::string>({{EM_386, "found 32-bit x86"},
                                                 {EM_ARM, "found 32-bit Arm"},
                                                 {EM_PPC64, "found PowerPC64"},
                                                 {EM_RISCV, "found RISC-V"},
                                                 {4711, "found machine 4711"}}));
    Damaged other_machine;
    other_machine.header().e_machine = number;
    CHECK_THAT(other_machine.refusal(), ContainsSubstring(machine));
    Damaged no_class;
    no_class.header().e_ident[EI_CLASS] = ELFCLASSNONE;
    CHECK_THAT(no_class.refusal(), ContainsSubstring("found an unknown class"));
}

TEST_CASE("program headers of another size, or outside the file, are not read") {
    Damaged wide;
    wide.header().e_phentsize = 64;
    const std::string found = std::to_string(wide.header().e_phnum) + " of 64 bytes";
    CHECK_THAT(wide.refusal(),
               ContainsSubstring("its program headers are damaged") && ContainsSubstring(found));
    const auto offset = GENERATE(uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 56);
    Damaged outside;
    outside.header().e_phoff = offset;
    CHECK_THAT(outside.refusal(), ContainsSubstring("the file is truncated: expected at least"));
}

TEST_CASE("segments that the dynamic linker would map over other memory are refused") {
    const int which = GENERATE(0, 1, 2, 3);
    Damaged damaged;
    Elf64_Phdr &second = damaged.segment(PT_LOAD, 1);
    switch (which) {
    case 0: // over the first
        second.p_vaddr = 0;
        break;
    case 1: // more from the file than there is memory
        second.p_memsz = second.p_filesz - 1;
        break;
    case 2: // an address beyond all that can be mapped
        second.p_vaddr = uint64_t{1} << 63;
        break;
    default: // an end beyond it
        second.p_memsz = UINT64_MAX;
    }
    CHECK_THAT(damaged.refusal(), ContainsSubstring("its segments are damaged: expected ascending "
                                                    "addresses, found one at "));
}

TEST_CASE("a segment that ends beyond the file is refused, even if the sum overflows") {
    Damaged damaged;
    damaged.segment(PT_LOAD, 1).p_offset = GENERATE(uint64_t{1} << 40, UINT64_MAX);
    CHECK_THAT(damaged.refusal(), ContainsSubstring("the file is truncated"));
}

TEST_CASE("a file without what is loaded, or without a dynamic section, is no library") {
    Damaged nothing;
    nothing.retype_all(PT_LOAD, PT_NULL);
    CHECK_THAT(nothing.refusal(), ContainsSubstring("it has no segment to load (PT_LOAD)"));
    Damaged fixed;
    fixed.retype_all(PT_DYNAMIC, PT_NULL);
    CHECK_THAT(fixed.refusal(), ContainsSubstring("it has no dynamic section"));
}

TEST_CASE("a file with a damaged note loads without a build id") {
    const int which = GENERATE(0, 1, 2, 3, 4, 5);
    Damaged damaged;
    Elf64_Nhdr &note = damaged.build_id_note();
    switch (which) {
    case 0: // more than the notes hold
        note.n_descsz = UINT32_MAX;
        break;
    case 1:
        note.n_namesz = UINT32_MAX;
        break;
    case 2: // of another author
        reinterpret_cast<char *>(&note + 1)[0] = 'X';
        break;
    case 3: // of another type
        note.n_type = NT_GNU_HWCAP;
        break;
    case 4:
        damaged.retype_all(PT_NOTE, PT_NULL);
        break;
    default: // outside the file
        for (int i = 0; i < damaged.header().e_phnum; ++i) {
            auto &each =
                reinterpret_cast<Elf64_Phdr *>(damaged.bytes.data() + damaged.header().e_phoff)[i];
            each.p_offset = each.p_type == PT_NOTE ? UINT64_MAX : each.p_offset;
        }
    }
    CHECK(damaged.check() == EMM_OK);
    CHECK(damaged.build_id == "");
}

TEST_CASE("a file without names in its dynamic section has none that could be another's") {
    const int which = GENERATE(0, 1);
    Damaged damaged;
    Elf64_Phdr &dynamic = damaged.segment(PT_DYNAMIC);
    auto *entry = reinterpret_cast<Elf64_Dyn *>(damaged.bytes.data() + dynamic.p_offset);
    for (; entry->d_tag != DT_NULL; ++entry) {
        if (which == 0 && entry->d_tag == DT_STRTAB) {
            entry->d_un.d_ptr = uint64_t{1} << 62; // nowhere in the file
        } else if (which == 1 && entry->d_tag == DT_SONAME) {
            entry->d_un.d_val = UINT64_MAX;
        }
    }
    CHECK(damaged.check() == EMM_OK);
}

TEST_CASE("a library's name that lies past the loaded bytes is ignored") {
    Damaged damaged;
    const Elf64_Phdr &first = damaged.segment(PT_LOAD);
    Elf64_Phdr &dynamic = damaged.segment(PT_DYNAMIC);
    const std::string taken("libcuda.so.1", 13); // with its NUL
    auto *entry = reinterpret_cast<Elf64_Dyn *>(damaged.bytes.data() + dynamic.p_offset);
    for (; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_STRTAB) {
            entry->d_un.d_ptr = first.p_vaddr + first.p_filesz;
        } else if (entry->d_tag == DT_SONAME || entry->d_tag == DT_GNU_HASH) {
            *entry = {DT_SONAME, {0}};
        }
    }
    damaged.bytes.replace(first.p_offset + first.p_filesz, taken.size(), taken);
    CHECK(damaged.check() == EMM_OK);
}

} // namespace
} // namespace emm::loader
