#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace emm::tool {

// A file's lines, unpacked by the gzip program if it is in gzip format. No more than a line is held
// in memory, and a line has a limit: a small file may unpack to a very large one. Only a regular
// file is opened, so that nothing is waited for. Throws Failure.
class LineFile {
public:
    static constexpr size_t longest = size_t(64) << 10;

    explicit LineFile(const std::string &path);
    ~LineFile();
    LineFile(const LineFile &) = delete;
    LineFile &operator=(const LineFile &) = delete;

    // The next line without its end, valid until the next call; nothing at the end of the file.
    // Throws Malformed as well.
    std::optional<std::string_view> next();

private:
    void unpack();
    bool fill();
    bool finish(); // false: gzip could not unpack all of it

    const std::string path_;
    int descriptor_ = -1;
    pid_t gzip_ = -1;
    std::string buffer_;
    size_t begin_ = 0; // of what has not been answered
};

} // namespace emm::tool
