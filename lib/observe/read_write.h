// Complete reads and writes, also if the system does them in parts or is interrupted.
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

// Reads up to `size` bytes from `offset` on, and returns how many could be read.
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

// A whole file, as far as it can be read, and 0 or the errno that ended it. A std::ifstream would
// not do, because programs started by exec would inherit it.
inline int read_file(const std::string &path, std::string &ret_text) {
    char part[16384];
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    int error = file >= 0 ? 0 : errno;
    for (ssize_t got = 1; file >= 0 && got > 0;) {
        got = read(file, part, sizeof part);
        error = got < 0 ? errno : 0;
        ret_text.append(part, got > 0 ? static_cast<size_t>(got) : 0);
    }
    if (file >= 0) {
        close(file);
    }
    return error;
}

inline std::string text_of_file(const std::string &path) {
    std::string text;
    read_file(path, text);
    return text;
}

} // namespace emm::observe
