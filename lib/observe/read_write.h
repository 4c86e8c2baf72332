// Reads and writes of which the system may do a part, or be interrupted in.
#pragma once

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace emm::observe {

// False, with errno: the rest cannot be written.
inline bool write_all(int descriptor, std::string_view bytes) noexcept {
    while (!bytes.empty()) {
        const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
        if (done < 0 && errno != EINTR) {
            return false;
        }
        bytes.remove_prefix(done > 0 ? static_cast<size_t>(done) : 0);
    }
    return true;
}

// How many of `size` bytes there are from `offset` on, as far as they can be read.
inline size_t read_at(int descriptor, uint64_t offset, void *into, size_t size) noexcept {
    size_t done = 0;
    ssize_t got = 1;
    while (done < size && (got > 0 || (got < 0 && errno == EINTR))) {
        got = pread(descriptor, static_cast<char *>(into) + done, size - done,
                    static_cast<off_t>(offset + done));
        done += got > 0 ? static_cast<size_t>(got) : 0;
    }
    return done;
}

// A whole file, as far as it can be read. Not with a std::ifstream, which programs that are exec'ed
// would inherit.
inline std::string text_of_file(const std::string &path) {
    std::string text;
    char part[16384];
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; file >= 0 && got > 0;) {
        got = read(file, part, sizeof part);
        text.append(part, got > 0 ? static_cast<size_t>(got) : 0);
    }
    if (file >= 0) {
        close(file);
    }
    return text;
}

} // namespace emm::observe
