#include "loader/mapped.h"

#include "observe/read_write.h"
#include "observe/text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <link.h>

namespace emm::loader {
namespace {

using Range = Mapped::Range;

bool contains(const Range &range, const void *address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= range.begin && at < range.end;
}

bool contain(const std::vector<Range> &ranges, const void *address) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [address](const Range &range) { return contains(range, address); });
}

// In most dynamic sections, glibc replaces the offsets by addresses, but not in the vDSO's.
const char *strings_of(const dl_phdr_info &info, const ElfW(Dyn) * dynamic) {
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
        if (dynamic->d_tag == DT_STRTAB) {
            const uintptr_t at = dynamic->d_un.d_ptr;
            return reinterpret_cast<const char *>(at < info.dlpi_addr ? at + info.dlpi_addr : at);
        }
    }
    return nullptr;
}

void read_names(const dl_phdr_info &info, const ElfW(Dyn) * dynamic, Library &ret) {
    const char *const strings = strings_of(info, dynamic);
    for (; strings && dynamic->d_tag != DT_NULL; ++dynamic) {
        if (dynamic->d_tag == DT_SONAME) {
            ret.soname = strings + dynamic->d_un.d_val;
        } else if (dynamic->d_tag == DT_NEEDED) {
            ret.needed.emplace_back(strings + dynamic->d_un.d_val);
        }
    }
}

// The dynamic linker wrote the name under a lock that the thread sanitizer does not see.
__attribute__((no_sanitize("thread"))) Library read_library(const dl_phdr_info &info) {
    Library library;
    for (const char *at = info.dlpi_name; at && *at != '\0'; ++at) {
        library.path += *at;
    }
    for (size_t i = 0; i < info.dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = info.dlpi_phdr[i];
        const uintptr_t begin = info.dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_DYNAMIC) {
            read_names(info, reinterpret_cast<const ElfW(Dyn) *>(begin), library);
        }
        if (segment.p_type != PT_LOAD) {
            continue;
        }
        if (segment.p_flags & PF_R) {
            library.readable.push_back({begin, begin + segment.p_memsz});
        }
        if (segment.p_flags & PF_X) {
            library.executable.push_back({begin, begin + segment.p_memsz});
        }
    }
    return library;
}

// No exception may pass through the C library: unwinding that needs memory, or ends the process.
int add_library(dl_phdr_info *info, size_t, void *to) noexcept {
    try {
        static_cast<std::vector<Library> *>(to)->push_back(read_library(*info));
        return 0;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}

std::vector<Library> libraries_of_process() {
    std::vector<Library> libraries;
    if (dl_iterate_phdr(&add_library, &libraries) != 0) {
        throw std::bad_alloc();
    }
    return libraries;
}

std::string file_name(const std::string &path) {
    return path.substr(path.rfind('/') + 1);
}

bool answers_to(const Library &library, const std::string &needed) {
    return library.soname == needed || library.path == needed ||
           (library.soname.empty() && file_name(library.path) == file_name(needed));
}

} // namespace

std::vector<size_t> linked(const std::vector<Library> &libraries, size_t first) {
    std::vector<size_t> found = {first};
    for (size_t next = 0; next < found.size(); ++next) {
        for (const std::string &needed : libraries[found[next]].needed) {
            for (size_t i = 0; i < libraries.size(); ++i) {
                if (answers_to(libraries[i], needed) &&
                    std::find(found.begin(), found.end(), i) == found.end()) {
                    found.push_back(i);
                }
            }
        }
    }
    return found;
}

Mapped Mapped::around(const void *code) {
    const std::vector<Library> libraries = libraries_of_process();
    std::vector<Range> ranges;
    for (size_t i = 0; i < libraries.size(); ++i) {
        if (!contain(libraries[i].readable, code) && !contain(libraries[i].executable, code)) {
            continue;
        }
        for (const size_t one : linked(libraries, i)) {
            ranges.insert(ranges.end(), libraries[one].readable.begin(),
                          libraries[one].readable.end());
        }
    }
    return Mapped(std::move(ranges));
}

Mapped Mapped::everywhere() {
    std::vector<Range> ranges;
    for (const std::string &line : observe::split(observe::text_of_file("/proc/self/maps"), '\n')) {
        unsigned long begin = 0, end = 0;
        char readable = '-';
        if (sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &readable) != 3 || readable != 'r') {
            continue;
        }
        if (!ranges.empty() && ranges.back().end == begin) {
            ranges.back().end = end;
        } else {
            ranges.push_back({begin, end});
        }
    }
    if (ranges.empty()) { // without /proc, the plugin's word is accepted
        ranges.push_back({1, UINTPTR_MAX});
    }
    return Mapped(std::move(ranges));
}

const Range *Mapped::range_of(const void *from) const {
    const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                    [from](const Range &range) { return contains(range, from); });
    return found == ranges_.end() ? nullptr : &*found;
}

bool Mapped::holds(const void *from, size_t size) const {
    const Range *const range = range_of(from);
    return range && size <= range->end - reinterpret_cast<uintptr_t>(from);
}

std::optional<std::string_view> Mapped::text(const char *from) const {
    const Range *const range = range_of(from);
    if (!range) {
        return std::nullopt;
    }
    const size_t most = range->end - reinterpret_cast<uintptr_t>(from);
    const size_t length = strnlen(from, most);
    return length < most ? std::optional(std::string_view(from, length)) : std::nullopt;
}

} // namespace emm::loader
