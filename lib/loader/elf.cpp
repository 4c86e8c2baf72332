#include "loader/file.h"

#include "loader/refusal.h"
#include "loader/text.h"
#include "observe/read_write.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace emm::loader {
namespace {

std::string type_name(unsigned type) {
    switch (type) {
    case ET_REL:
        return "an object file (.o)";
    case ET_EXEC:
        return "an executable";
    case ET_CORE:
        return "a core dump";
    default:
        return fmt::format("type {}", type);
    }
}

// Both numbers come from the file, so their sum may overflow.
bool fits(uint64_t begin, uint64_t size, uint64_t limit) {
    return begin <= limit && size <= limit - begin;
}

// Notes are {name size, description size, type}, name, description, each padded to the alignment.
std::string build_id_among(const std::vector<char> &notes, uint64_t alignment) {
    constexpr size_t longest_id = 64;
    const auto padded = [=](uint64_t size) { return (size + alignment - 1) & ~(alignment - 1); };
    uint64_t at = 0;
    Elf64_Nhdr note;
    while (fits(at, sizeof note, notes.size())) {
        std::memcpy(&note, notes.data() + at, sizeof note);
        const char *name = notes.data() + at + sizeof note;
        const uint64_t id = at + sizeof note + padded(note.n_namesz);
        if (!fits(id, note.n_descsz, notes.size())) {
            break;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            std::memcmp(name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0 &&
            note.n_descsz <= longest_id) {
            const auto *const bytes = reinterpret_cast<const unsigned char *>(notes.data() + id);
            return fmt::format("{:02x}", fmt::join(bytes, bytes + note.n_descsz, ""));
        }
        at = id + padded(note.n_descsz);
    }
    return "";
}

class ElfFile {
public:
    ElfFile(int descriptor, const std::string &path) : descriptor_(descriptor), path_(path) {}

    emm_status check();
    std::string build_id() const;

private:
    emm_status check_header();
    emm_status read_segments();
    emm_status check_segments() const;
    emm_status check_dynamic() const;
    emm_status check_names() const;
    std::vector<Elf64_Dyn> dynamic_entries() const;
    std::string soname() const;
    uint64_t offset_of(uint64_t address) const;
    bool read(uint64_t offset, void *to, size_t size) const;
    emm_status bad(std::string problem, std::string expected, std::string got,
                   std::string hint = "") const;
    emm_status truncated(uint64_t begin, uint64_t size) const;
    emm_status unreadable() const; // errno has the reason

    int descriptor_;
    const std::string &path_;
    uint64_t size_ = 0;
    Elf64_Ehdr header_ = {};
    std::vector<Elf64_Phdr> segments_;
};

emm_status ElfFile::check() {
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0) {
        return unreadable();
    }
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ == 0) {
        return bad("the file is empty", "", "");
    }
    EMM_TRY(check_header());
    EMM_TRY(read_segments());
    EMM_TRY(check_segments());
    EMM_TRY(check_dynamic());
    return check_names();
}

emm_status ElfFile::check_header() {
    const size_t available = std::min<uint64_t>(size_, sizeof header_);
    if (!read(0, &header_, available)) {
        return unreadable();
    }
    if (available < SELFMAG || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) {
        return bad("it is not an ELF file", "", "");
    }
    if (available < sizeof header_) {
        return truncated(0, sizeof header_);
    }
    if (header_.e_ident[EI_CLASS] != ELFCLASS64) {
        return bad("it was built for another architecture", "a 64-bit library",
                   header_.e_ident[EI_CLASS] == ELFCLASS32 ? "a 32-bit one" : "an unknown class");
    }
    if (header_.e_ident[EI_DATA] != ELFDATA2LSB) {
        return bad("it was built for another architecture", "a little-endian library",
                   "another byte order");
    }
    if (header_.e_machine != this_machine) {
        return bad("it was built for another architecture", machine_name(this_machine),
                   machine_name(header_.e_machine));
    }
    if (header_.e_type != ET_DYN) {
        return bad("it is of the wrong kind", "a shared library", type_name(header_.e_type),
                   "link it with -shared");
    }
    return EMM_OK;
}

emm_status ElfFile::read_segments() {
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0) {
        return bad("its program headers are damaged",
                   fmt::format("{} bytes each", sizeof(Elf64_Phdr)),
                   fmt::format("{} of {} bytes", header_.e_phnum, header_.e_phentsize));
    }
    const uint64_t size = uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
    if (!fits(header_.e_phoff, size, size_)) {
        return truncated(header_.e_phoff, size);
    }
    segments_.resize(header_.e_phnum);
    return read(header_.e_phoff, segments_.data(), size) ? EMM_OK : unreadable();
}

emm_status ElfFile::check_segments() const {
    uint64_t end = 0;
    bool found = false;
    for (const Elf64_Phdr &segment : segments_) {
        if (segment.p_type != PT_LOAD) {
            continue;
        }
        if (!fits(segment.p_offset, segment.p_filesz, size_)) {
            return truncated(segment.p_offset, segment.p_filesz);
        }
        // Otherwise the dynamic linker would map segments over each other, or over other memory.
        if (segment.p_filesz > segment.p_memsz || segment.p_vaddr < end ||
            !fits(segment.p_vaddr, segment.p_memsz, INT64_MAX)) {
            return bad("its segments are damaged", "ascending addresses",
                       fmt::format("one at {}", segment.p_vaddr));
        }
        end = segment.p_vaddr + segment.p_memsz;
        found = true;
    }
    return found ? EMM_OK : bad("it has no segment to load (PT_LOAD)", "", "");
}

emm_status ElfFile::check_dynamic() const {
    const auto dynamic =
        std::find_if(segments_.begin(), segments_.end(),
                     [](const Elf64_Phdr &segment) { return segment.p_type == PT_DYNAMIC; });
    if (dynamic == segments_.end()) {
        return bad("it has no dynamic section", "", "", "link it with -shared");
    }
    for (const Elf64_Phdr &load : segments_) {
        if (load.p_type == PT_LOAD && dynamic->p_vaddr >= load.p_vaddr &&
            fits(dynamic->p_vaddr - load.p_vaddr, dynamic->p_filesz, load.p_filesz)) {
            return EMM_OK;
        }
    }
    return bad("its dynamic section is damaged", "an address inside what is loaded", "one outside");
}

// The file offset of the byte that will be mapped at `address`; UINT64_MAX if the file does not
// have it.
uint64_t ElfFile::offset_of(uint64_t address) const {
    for (const Elf64_Phdr &load : segments_) {
        if (load.p_type == PT_LOAD && address >= load.p_vaddr &&
            address - load.p_vaddr < load.p_filesz) {
            return load.p_offset + (address - load.p_vaddr);
        }
    }
    return UINT64_MAX;
}

std::vector<Elf64_Dyn> ElfFile::dynamic_entries() const {
    for (const Elf64_Phdr &segment : segments_) {
        if (segment.p_type == PT_DYNAMIC && segment.p_filesz <= size_) {
            std::vector<Elf64_Dyn> entries(segment.p_filesz / sizeof(Elf64_Dyn));
            const size_t bytes = entries.size() * sizeof(Elf64_Dyn);
            return read(offset_of(segment.p_vaddr), entries.data(), bytes)
                       ? entries
                       : std::vector<Elf64_Dyn>();
        }
    }
    return {};
}

// Cut to the length that matters here; "" without one.
std::string ElfFile::soname() const {
    uint64_t strings = UINT64_MAX, name = UINT64_MAX;
    for (const Elf64_Dyn &entry : dynamic_entries()) {
        strings = entry.d_tag == DT_STRTAB ? offset_of(entry.d_un.d_ptr) : strings;
        name = entry.d_tag == DT_SONAME ? entry.d_un.d_val : name;
    }
    char text[64] = {};
    if (!fits(strings, name, size_) || strings + name >= size_ ||
        !read(strings + name, text, std::min<uint64_t>(size_ - strings - name, sizeof text - 1))) {
        return "";
    }
    return text;
}

// Only a flag tells a position-independent executable from a library. And the dynamic linker finds
// loaded libraries by SONAME, so a plugin with the driver's SONAME would be used as the driver.
emm_status ElfFile::check_names() const {
    for (const Elf64_Dyn &entry : dynamic_entries()) {
        if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0) {
            return bad("it is of the wrong kind", "a shared library",
                       "an executable (position-independent)", "link it with -shared");
        }
    }
    const std::string name = soname();
    for (const char *taken : {"libcuda.so.1", "libcuda.so", "libemm.so.1"}) {
        if (name == taken) {
            return bad("it has the SONAME of another library, " + name, "", "",
                       "link it without -Wl,-soname," + name);
        }
    }
    return EMM_OK;
}

std::string ElfFile::build_id() const {
    constexpr uint64_t most = 64 * 1024;
    for (const Elf64_Phdr &segment : segments_) {
        if (segment.p_type != PT_NOTE || !fits(segment.p_offset, segment.p_filesz, size_)) {
            continue;
        }
        std::vector<char> notes(std::min<uint64_t>(segment.p_filesz, most));
        if (read(segment.p_offset, notes.data(), notes.size())) {
            std::string id = build_id_among(notes, segment.p_align == 8 ? 8 : 4);
            if (!id.empty()) {
                return id;
            }
        }
    }
    return "";
}

bool ElfFile::read(uint64_t offset, void *to, size_t size) const {
    errno = 0;
    return observe::read_at(descriptor_, offset, to, size) == size;
}

emm_status ElfFile::bad(std::string problem, std::string expected, std::string got,
                        std::string hint) const {
    return refuse_file("elf", path_, std::move(problem), std::move(expected), std::move(got),
                       std::move(hint));
}

emm_status ElfFile::unreadable() const {
    return bad("cannot read it", "",
               errno != 0 ? std::strerror(errno) : "a file that becomes shorter meanwhile");
}

emm_status ElfFile::truncated(uint64_t begin, uint64_t size) const {
    const uint64_t needed = size > UINT64_MAX - begin ? UINT64_MAX : begin + size;
    return bad("the file is truncated", fmt::format("at least {} bytes", needed),
               fmt::format("{} bytes", size_), "copy or build it again");
}

} // namespace

emm_status check_elf(int descriptor, const std::string &path, std::string &ret_build_id) {
    ElfFile file(descriptor, path);
    EMM_TRY(file.check());
    ret_build_id = file.build_id();
    return EMM_OK;
}

} // namespace emm::loader
