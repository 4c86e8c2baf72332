// Input for functions that read files: the bytes as a file without a name, and a check of refusals.
#pragma once

#include "fuzz.h"

#include <algorithm>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

class MemoryFile {
public:
    MemoryFile(const uint8_t *data, size_t size) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
        require(descriptor_ >= 0 && write(descriptor_, data, size) == ssize_t(size),
                "the input is written");
    }
    ~MemoryFile() { close(descriptor_); }
    MemoryFile(const MemoryFile &) = delete;
    MemoryFile &operator=(const MemoryFile &) = delete;

    std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

private:
    const int descriptor_;
};

inline void require_sentence(const std::string &text) {
    require(!text.empty() && std::all_of(text.begin(), text.end(),
                                         [](unsigned char c) { return c >= ' ' && c != 0x7f; }),
            "a refusal is one line without control characters");
}
