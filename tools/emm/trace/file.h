#pragma once

#include "trace/builder.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

namespace emm::tool {

// A file's bytes, unpacked by the gzip program if it is in gzip format. Only a regular file is
// opened, so that no open waits. Throws Failure.
class ByteFile {
public:
    // `name` is the file's name in messages.
    ByteFile(const std::string &path, std::string name);
    ~ByteFile();
    ByteFile(const ByteFile &) = delete;
    ByteFile &operator=(const ByteFile &) = delete;

    const std::string &name() const { return name_; }

    // At least one byte, or 0 at the end of the file.
    size_t read(char *into, size_t most);

    // The share of the file on the disk that has been read, from 0 to 1.
    double share() const;

private:
    void unpack();
    bool finish(); // false: gzip could not unpack all of it

    const std::string name_;
    int descriptor_ = -1;
    int packed_ = -1; // the file that gzip reads
    uint64_t size_ = 0;
    pid_t gzip_ = -1;
};

// A file's lines. At most one line is held in memory, and a line has a limit: a small file may
// unpack to a very large one. Throws Failure.
class LineFile {
public:
    static constexpr size_t longest = size_t(64) << 10;

    // Without a path: the lines of a text.
    LineFile(const std::optional<std::string> &path, const std::string &name,
             std::string_view text = "")
        : name_(name), buffer_(text) {
        if (path) {
            file_.emplace(*path, name);
        }
    }

    // The next line without its end, valid until the next call; "" behind the last line, too.
    // Throws Malformed as well.
    std::string_view first() { return next().value_or(""); }

    // Each remaining line that is not empty. `report`, if given, is called now and then with the
    // share of the file that has been read. Throws Malformed as well.
    void each(const std::function<void(std::string_view)> &take,
              const std::function<void(double)> &report);

    // Calls `work` and gives its answer. A Malformed from it becomes a Failure that names the line.
    template <class Work> auto where_it_is(Work work) {
        try {
            return work();
        } catch (const Malformed &malformed) {
            throw bad_file(name_, "line " + std::to_string(std::max<size_t>(line_, 1)), malformed);
        }
    }

private:
    std::optional<std::string_view> next();
    bool fill(); // false at the end of the file

    std::optional<ByteFile> file_;
    const std::string name_;
    std::string buffer_;
    size_t begin_ = 0; // of the rest that has not been given out
    size_t line_ = 0;  // the number of the latest line
};

// TMPDIR, or /tmp.
std::string temporary_folder();

// A file that the user named, or standard input for "-", which is copied to a file without a name:
// several processes read it, and some readers read it twice. Nothing is left of the copy when the
// process ends, however it ends. Throws Failure.
class Input {
public:
    explicit Input(const std::string &name);
    ~Input();
    Input(const Input &) = delete;
    Input &operator=(const Input &) = delete;

    // The path of a regular file, for this process and its children.
    const std::string &path() const { return path_; }

    // For messages.
    const std::string &name() const { return name_; }

private:
    void copy();

    std::string path_, name_;
    int descriptor_ = -1;
};

} // namespace emm::tool
