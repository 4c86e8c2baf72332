// Any bytes are either refused, or their program headers and loadable parts lie inside the file.
#include "fuzz.h"
#include "loader/file.h"

#include <cstring>
#include <elf.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

int file_of(const uint8_t *data, size_t size) {
    static const int file = memfd_create("elf-fuzz", MFD_CLOEXEC);
    require(file >= 0 && ftruncate(file, 0) == 0 &&
                pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
            "the input can be written to a file in memory");
    return file;
}

bool inside(uint64_t begin, uint64_t length, uint64_t size) {
    return begin <= size && length <= size - begin;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    std::string build_id;
    if (emm::loader::check_elf(file_of(data, size), "input", build_id) != EMM_OK) {
        require(build_id.empty(), "a refusal leaves the output alone");
        return 0;
    }
    Elf64_Ehdr header;
    require(size >= sizeof header, "what is accepted has a header");
    std::memcpy(&header, data, sizeof header);
    require(inside(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr), size),
            "what is accepted has its program headers in the file");
    for (size_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        std::memcpy(&segment, data + header.e_phoff + i * sizeof segment, sizeof segment);
        require(segment.p_type != PT_LOAD || inside(segment.p_offset, segment.p_filesz, size),
                "what is accepted has its segments in the file");
    }
    require(build_id.size() % 2 == 0 && build_id.size() <= 128, "a build id is short");
    return 0;
}
