#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <sys/types.h>

// Whether the dynamic linker loads the libraries in LD_PRELOAD into a program. If it does not, the
// program would run without emm and not say so.
namespace emm::tool {

// Bytes of a file from `offset` on, fewer at its end.
using ReadAt = std::function<std::string(uint64_t offset, size_t size)>;

// Why an ELF file gets no preloaded library: it is static, damaged or for another machine. "": it
// gets them.
std::string elf_obstacle(const ReadAt &read);

// The rights that a program's file gives to the process that runs it.
struct FileRights {
    mode_t mode = 0;
    uid_t owner = 0;
    gid_t group = 0;
    bool has_capabilities = false;
    bool are_ignored = false; // by a nosuid mount or no_new_privs
};

// The process that starts the program, by its real ids.
struct Starter {
    uid_t user = 0;
    gid_t group = 0;
};

// Says that a program gets more rights than its starter has, because the dynamic linker then
// ignores LD_PRELOAD. "": it gets no more rights.
std::string rights_obstacle(const FileRights &file, const Starter &starter);

// The folder of the files that a program loads to run on emm: the interposer, libcuda.so.1, and the
// audit library. Throws Refusal unless the interposer is there and the dynamic linker accepts its
// path.
std::string find_run_folder();

} // namespace emm::tool
