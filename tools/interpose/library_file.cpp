#include "library_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::run {
namespace {

// The cache of the dynamic linker, as glibc has written it since 2.2; offsets of texts count from
// its beginning. Before 2.32 the cache comes after one in the form of 2.1 (`OldHead`).
struct CacheHead {
    char magic[20];
    uint32_t count;
    uint32_t string_bytes;
    uint32_t unused[5];
};
struct CacheEntry {
    int32_t flags;
    uint32_t name;
    uint32_t path;
    uint32_t unused;
    uint64_t hardware;
};
constexpr const char magic[] = "glibc-ld.so.cache1.1";
struct OldHead {
    char magic[12]; // with its end
    uint32_t count;
};
constexpr uint64_t old_entry_bytes = 12;
constexpr const char old_magic[] = "ld.so-1.7.0";

// The marks of a 64-bit library for glibc, in the cache and in the library's file; and Debian's
// name for the machine.
#if defined(__x86_64__)
constexpr int32_t this_machine = 0x0303;
constexpr Elf64_Half elf_machine = EM_X86_64;
#define MACHINE "x86_64-linux-gnu"
#elif defined(__aarch64__)
constexpr int32_t this_machine = 0x0a03;
constexpr Elf64_Half elf_machine = EM_AARCH64;
#define MACHINE "aarch64-linux-gnu"
#endif
constexpr const char *system_folders[] = {
    "/lib/" MACHINE, "/usr/lib/" MACHINE, "/lib64", "/usr/lib64", "/lib", "/usr/lib"};

bool visit_in_folder(const char *folder, size_t length, const char *name, Visit visit,
                     void *state) {
    Path path;
    const bool is_current = length == 0; // an empty item is the current folder
    const int written = snprintf(path.text, sizeof path.text, "%.*s/%s",
                                 is_current ? 1 : int(length), is_current ? "." : folder, name);
    return written > 0 && size_t(written) < sizeof path.text && visit(path, state);
}

// How many bytes of the cache have the form of 2.1, which is not read: 0 in newer ones.
size_t old_form_bytes(const char *cache, size_t bytes) {
    OldHead head;
    if (bytes < sizeof head) {
        return 0;
    }
    memcpy(&head, cache, sizeof head);
    const uint64_t whole = sizeof head + head.count * old_entry_bytes;
    const bool is_old = memcmp(head.magic, old_magic, sizeof old_magic - 1) == 0;
    const uint64_t end =
        (whole + alignof(CacheEntry) - 1) / alignof(CacheEntry) * alignof(CacheEntry);
    return is_old && end <= bytes ? end : 0;
}

// NULL: the text does not end within the cache.
const char *text_at(const char *cache, size_t bytes, uint32_t offset) {
    return offset < bytes && memchr(cache + offset, 0, bytes - offset) ? cache + offset : nullptr;
}

bool same_file(const struct stat &a, const struct stat &b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// A folder such as /usr/local/nvidia/lib has libraries of 32 bits. The dynamic linker passes over
// these, and refuses any other file that it cannot load.
bool is_for_another_machine(const char *file) {
    Elf64_Ehdr header; // the same in its 32-bit form, as far as it is read
    const int opened = open(file, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = opened >= 0 ? read(opened, &header, sizeof header) : 0;
    if (opened >= 0) {
        close(opened);
    }
    return bytes >= ssize_t(offsetof(Elf64_Ehdr, e_version)) &&
           memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != elf_machine);
}

struct Wanted {
    Path &found;
    bool knows_own;
    struct stat own; // the interposer's file
};

bool is_wanted(const Path &path, void *state) {
    Wanted &wanted = *static_cast<Wanted *>(state);
    struct stat status;
    if (stat(path.text, &status) != 0 || !S_ISREG(status.st_mode) ||
        (wanted.knows_own && same_file(status, wanted.own)) || is_for_another_machine(path.text)) {
        return false;
    }
    wanted.found = path;
    return true;
}

} // namespace

bool each_in_cache(const char *cache, size_t bytes, const char *name, Visit visit, void *state) {
    CacheHead head;
    const size_t skipped = old_form_bytes(cache, bytes);
    cache += skipped;
    bytes -= skipped;
    if (bytes < sizeof head) {
        return false;
    }
    memcpy(&head, cache, sizeof head);
    if (memcmp(head.magic, magic, sizeof head.magic) != 0) {
        return false;
    }
    const size_t room = (bytes - sizeof head) / sizeof(CacheEntry);
    for (size_t i = 0; i < head.count && i < room; i++) {
        CacheEntry entry;
        memcpy(&entry, cache + sizeof head + i * sizeof entry, sizeof entry);
        const char *const its_name = text_at(cache, bytes, entry.name);
        const char *const its_path = text_at(cache, bytes, entry.path);
        Path path;
        if (entry.flags == this_machine && its_name && its_path && strcmp(its_name, name) == 0 &&
            strlen(its_path) < sizeof path.text) {
            memcpy(path.text, its_path, strlen(its_path) + 1);
            if (visit(path, state)) {
                return true;
            }
        }
    }
    return false;
}

bool each_place(const char *name, const char *library_path, const char *cache, size_t cache_bytes,
                Visit visit, void *state) {
    for (const char *folder = library_path; folder && *library_path;) {
        const size_t length = strcspn(folder, ":;");
        if (visit_in_folder(folder, length, name, visit, state)) {
            return true;
        }
        folder = folder[length] ? folder + length + 1 : nullptr;
    }
    if (cache && each_in_cache(cache, cache_bytes, name, visit, state)) {
        return true;
    }
    for (const char *folder : system_folders) {
        if (visit_in_folder(folder, strlen(folder), name, visit, state)) {
            return true;
        }
    }
    return false;
}

bool find_library(const char *name, const Path &own, Path &ret_path) {
    Wanted wanted = {ret_path, false, {}};
    wanted.knows_own = stat(own.text, &wanted.own) == 0;
    const int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    const bool has_cache = file >= 0 && fstat(file, &status) == 0 && status.st_size > 0;
    const size_t bytes = has_cache ? size_t(status.st_size) : 0;
    void *const cache =
        has_cache ? mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    if (file >= 0) {
        close(file);
    }
    const bool is_mapped = cache != MAP_FAILED;
    const bool found = each_place(name, getenv("LD_LIBRARY_PATH"),
                                  is_mapped ? static_cast<const char *>(cache) : nullptr, bytes,
                                  is_wanted, &wanted);
    if (is_mapped) {
        munmap(cache, bytes);
    }
    return found;
}

void find_file_of(const void *code, Path &ret_path) {
    Dl_info info = {};
    dladdr(code, &info);
    snprintf(ret_path.text, sizeof ret_path.text, "%s", info.dli_fname ? info.dli_fname : "");
}

bool beside(const Path &file, const char *tail, Path &ret_path) {
    const char *const slash = strrchr(file.text, '/');
    const int length = slash ? int(slash - file.text) : 1;
    const int written = snprintf(ret_path.text, sizeof ret_path.text, "%.*s/%s", length,
                                 slash ? file.text : ".", tail);
    return written > 0 && size_t(written) < sizeof ret_path.text;
}

} // namespace emm::run
