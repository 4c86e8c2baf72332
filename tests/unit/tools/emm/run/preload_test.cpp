#include "catch.h"
#include "loader/text.h"
#include "run/preload.h"

#include <cstring>
#include <elf.h>
#include <sys/stat.h>
#include <vector>

using namespace emm::tool;

namespace {

// An ELF file of headers alone.
struct Program {
    Elf64_Ehdr header = {};
    std::vector<Elf64_Phdr> segments;

    explicit Program(std::initializer_list<Elf64_Word> types) {
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_machine = emm::loader::this_machine;
        header.e_phoff = sizeof header;
        header.e_phentsize = sizeof(Elf64_Phdr);
        header.e_phnum = static_cast<Elf64_Half>(types.size());
        for (const Elf64_Word type : types) {
            segments.push_back({});
            segments.back().p_type = type;
        }
    }

    std::string bytes() const {
        std::string all(reinterpret_cast<const char *>(&header), sizeof header);
        return all.append(reinterpret_cast<const char *>(segments.data()),
                          segments.size() * sizeof(Elf64_Phdr));
    }
};

std::string obstacle_in(const std::string &bytes) {
    return elf_obstacle([&](uint64_t offset, size_t size) {
        return offset < bytes.size() ? bytes.substr(offset, size) : "";
    });
}

bool says(const std::string &sentence, const char *words) {
    return sentence.find(words) != std::string::npos;
}

constexpr uid_t starting_user = 1000, other_user = 0;

} // namespace

TEST_CASE("a program that names its dynamic linker takes a preloaded library") {
    CHECK(obstacle_in(Program({PT_PHDR, PT_INTERP, PT_LOAD}).bytes()) == "");
}

TEST_CASE("a program without a dynamic linker is static, position-independent or not") {
    CHECK(says(obstacle_in(Program({PT_LOAD}).bytes()),
               "linked statically: it names no dynamic linker"));
    CHECK(says(obstacle_in(Program({PT_LOAD, PT_DYNAMIC}).bytes()),
               "linked statically: it names no dynamic linker"));
}

TEST_CASE("program headers may lie anywhere in the file") {
    Program program({PT_LOAD, PT_INTERP});
    const size_t gap = 1 << 20;
    program.header.e_phoff = sizeof program.header + gap;
    std::string bytes = program.bytes();
    bytes.insert(sizeof program.header, gap, '\0');
    CHECK(obstacle_in(bytes) == "");
}

TEST_CASE("a program for another architecture is named with both") {
    Program program({PT_INTERP});
    program.header.e_machine = EM_RISCV;
    CHECK(says(obstacle_in(program.bytes()), "found RISC-V"));
    program = Program({PT_INTERP});
    program.header.e_ident[EI_CLASS] = ELFCLASS32;
    CHECK(says(obstacle_in(program.bytes()), "expected a 64-bit program, found a 32-bit one"));
    program = Program({PT_INTERP});
    program.header.e_ident[EI_DATA] = ELFDATA2MSB;
    CHECK(says(obstacle_in(program.bytes()), "expected a little-endian program"));
}

TEST_CASE("a damaged program is refused wherever it is cut") {
    const std::string whole = Program({PT_LOAD, PT_INTERP}).bytes();
    for (size_t size = SELFMAG; size < whole.size(); ++size) {
        CHECK(says(obstacle_in(whole.substr(0, size)), "truncated: expected"));
    }
    Program program({PT_INTERP});
    program.header.e_phentsize = 8;
    CHECK(says(obstacle_in(program.bytes()), "found 1 of 8"));
    program = Program({PT_INTERP});
    program.header.e_phoff = UINT64_MAX - 8;
    CHECK(says(obstacle_in(program.bytes()), "truncated"));
}

TEST_CASE("a program of another user's or group's rights takes no preloaded library") {
    const Starter starter = {starting_user, starting_user};
    CHECK(rights_obstacle({.mode = 0755, .owner = other_user, .group = other_user}, starter) == "");
    CHECK(
        says(rights_obstacle({.mode = S_ISUID | 0755, .owner = other_user, .group = other_user},
                             starter),
             "set-user-id, so the dynamic linker ignores LD_PRELOAD: expected user 1000, found 0"));
    CHECK(says(rights_obstacle(
                   {.mode = S_ISGID | 0755, .owner = starting_user, .group = other_user}, starter),
               "set-group-id, so the dynamic linker ignores LD_PRELOAD: expected group 1000"));
    CHECK(says(rights_obstacle({.mode = 0755, .has_capabilities = true}, starter),
               "file capabilities"));
}

TEST_CASE("rights that add nothing are no obstacle") {
    const Starter starter = {starting_user, starting_user};
    CHECK(rights_obstacle(
              {.mode = S_ISUID | S_ISGID | 0755, .owner = starting_user, .group = starting_user},
              starter) == "");
    CHECK(rights_obstacle({.mode = S_ISGID | 0644, .owner = starting_user, .group = other_user},
                          starter) == "");
    CHECK(rights_obstacle({.mode = 0755, .has_capabilities = true}, {0, 0}) == "");
    CHECK(rights_obstacle({.mode = S_ISUID | S_ISGID | 0755,
                           .owner = other_user,
                           .group = other_user,
                           .has_capabilities = true,
                           .are_ignored = true},
                          starter) == "");
}
