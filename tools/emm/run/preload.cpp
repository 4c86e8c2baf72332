#include "run/preload.h"

#include "dl/home.h"
#include "loader/text.h"
#include "run/environment.h"
#include "run/program.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <vector>

namespace emm::tool {
namespace {

// "": it is an ELF file for this machine.
std::string header_obstacle(const std::string &bytes) {
    Elf64_Ehdr header = {};
    if (bytes.size() < sizeof header) {
        return fmt::format("it is truncated: expected at least {} bytes, found {}", sizeof header,
                           bytes.size());
    }
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64) {
        return "it is for another architecture: expected a 64-bit program, found a 32-bit one";
    }
    if (header.e_ident[EI_DATA] != ELFDATA2LSB) {
        return "it is for another architecture: expected a little-endian program, found another "
               "byte order";
    }
    if (header.e_machine != loader::this_machine) {
        return fmt::format("it is for another architecture: expected {}, found {}",
                           loader::machine_name(loader::this_machine),
                           loader::machine_name(header.e_machine));
    }
    if (header.e_phnum == 0 || header.e_phentsize != sizeof(Elf64_Phdr)) {
        return fmt::format("its program headers are damaged: expected some of {} bytes each, found "
                           "{} of {}",
                           sizeof(Elf64_Phdr), header.e_phnum, header.e_phentsize);
    }
    return "";
}

bool has_interpreter(const std::string &program_headers) {
    for (size_t at = 0; at < program_headers.size(); at += sizeof(Elf64_Phdr)) {
        Elf64_Phdr segment;
        std::memcpy(&segment, program_headers.data() + at, sizeof segment);
        if (segment.p_type == PT_INTERP) {
            return true;
        }
    }
    return false;
}

} // namespace

std::string elf_obstacle(const ReadAt &read) {
    const std::string start = read(0, sizeof(Elf64_Ehdr));
    const std::string obstacle = header_obstacle(start);
    if (!obstacle.empty()) {
        return obstacle;
    }
    Elf64_Ehdr header;
    std::memcpy(&header, start.data(), sizeof header);
    const size_t size = size_t{header.e_phnum} * sizeof(Elf64_Phdr);
    const std::string program_headers = read(header.e_phoff, size);
    if (program_headers.size() != size) {
        return fmt::format("it is truncated: expected {} bytes of program headers, found {}", size,
                           program_headers.size());
    }
    return has_interpreter(program_headers)
               ? ""
               : "it is linked statically: it names no dynamic linker (PT_INTERP); --print-env "
                 "serves programs that a static launcher starts";
}

// A group's bit without the right to execute means mandatory locking.
std::string rights_obstacle(const FileRights &file, const Starter &starter) {
    constexpr mode_t set_group = S_ISGID | S_IXGRP;
    if (file.are_ignored) {
        return "";
    }
    if ((file.mode & S_ISUID) != 0 && file.owner != starter.user) {
        return fmt::format("it is set-user-id, so the dynamic linker ignores LD_PRELOAD: expected "
                           "user {}, found {}",
                           starter.user, file.owner);
    }
    if ((file.mode & set_group) == set_group && file.group != starter.group) {
        return fmt::format("it is set-group-id, so the dynamic linker ignores LD_PRELOAD: expected "
                           "group {}, found {}",
                           starter.group, file.group);
    }
    if (file.has_capabilities && starter.user != 0) {
        return "it has file capabilities, so the dynamic linker ignores LD_PRELOAD";
    }
    return "";
}

namespace {

bool has_interposer(const std::string &folder) {
    std::error_code error;
    return std::filesystem::exists(folder + "/libcuda.so.1", error);
}

// The installed tree may have been moved; plugins may have a folder elsewhere.
std::vector<std::string> likely_folders() {
    const dl::Home home = dl::home_of(dlsym(RTLD_DEFAULT, "emm_version"));
    if (home.build_tree) {
        return {std::filesystem::path(home.folder).parent_path() / "tools/interpose"};
    }
    return {home.folder + "/emm/run", EMM_PLUGIN_DIR "/run"};
}

} // namespace

std::string find_run_folder() {
    const std::vector<std::string> likely = likely_folders();
    const auto found = std::find_if(likely.begin(), likely.end(), has_interposer);
    if (found == likely.end()) {
        throw Refusal(1, fmt::format("the interposer is missing: there is no libcuda.so.1 in {}",
                                     fmt::join(likely, " or ")));
    }
    const std::string folder = std::filesystem::canonical(*found).string();
    if (const char unfit = unfit_character(folder)) {
        throw Refusal(
            1, fmt::format("no library can be preloaded from {}, because the path has a '{}'",
                           folder, unfit));
    }
    return folder;
}

} // namespace emm::tool
