#include "trace/file.h"

#include "observe/read_write.h"
#include "problem.h"
#include "progress.h"
#include "table.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

extern char **environ;

namespace emm::tool {
namespace {

Failure unreadable(const std::string &path, std::string message) {
    return Failure({.stage = "trace", .message = std::move(message), .path = path});
}

bool is_gzip(int descriptor) {
    unsigned char magic[2] = {};
    return pread(descriptor, magic, sizeof magic, 0) == sizeof magic && magic[0] == 0x1f &&
           magic[1] == 0x8b;
}

pid_t spawn_gzip(int input, int output, const std::string &path) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    char name[] = "gzip", flags[] = "-dc";
    char *arguments[] = {name, flags, nullptr};
    pid_t process = 0;
    const int error = posix_spawnp(&process, name, &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        throw unreadable(path, path + ": cannot start gzip to unpack it: " + std::strerror(error));
    }
    return process;
}

ssize_t read_some(int descriptor, char *into, size_t most) {
    ssize_t got;
    while ((got = read(descriptor, into, most)) < 0 && errno == EINTR) {
    }
    return got;
}

std::string kind_of(mode_t mode) {
    return S_ISFIFO(mode) ? "a FIFO" : S_ISDIR(mode) ? "a folder" : "a device or socket";
}

} // namespace

ByteFile::ByteFile(const std::string &path, std::string name)
    : name_(std::move(name)),
      descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    if (descriptor_ < 0) {
        throw unreadable(name_, "cannot open " + name_ + ": " + std::strerror(errno));
    }
    try {
        struct stat status = {};
        if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
            throw unreadable(name_, name_ + " is " + kind_of(status.st_mode) +
                                        "; expected a regular file");
        }
        size_ = static_cast<uint64_t>(status.st_size);
        if (is_gzip(descriptor_)) {
            unpack();
        }
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

ByteFile::~ByteFile() {
    close(descriptor_);
    if (packed_ >= 0) {
        close(packed_);
    }
    finish();
}

// From here on, bytes come out of a pipe.
void ByteFile::unpack() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        throw unreadable(name_, name_ + ": cannot make a pipe for gzip: " + std::strerror(errno));
    }
    try {
        gzip_ = spawn_gzip(descriptor_, ends[1], name_);
    } catch (...) {
        close(ends[0]);
        close(ends[1]);
        throw;
    }
    close(ends[1]);
    packed_ = std::exchange(descriptor_, ends[0]);
}

bool ByteFile::finish() {
    int status = 0;
    while (gzip_ > 0 && waitpid(gzip_, &status, 0) < 0 && errno == EINTR) {
    }
    gzip_ = -1;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

size_t ByteFile::read(char *into, size_t most) {
    const ssize_t got = read_some(descriptor_, into, most);
    if (got < 0) {
        throw unreadable(name_, "cannot read " + name_ + ": " + std::strerror(errno));
    }
    if (got == 0 && !finish()) { // an unfinished rest is no last line
        throw unreadable(name_, name_ + ": gzip cannot unpack it: it is damaged or incomplete");
    }
    return static_cast<size_t>(got);
}

// gzip shares the position in the file with this process.
double ByteFile::share() const {
    const off_t at = lseek(packed_ >= 0 ? packed_ : descriptor_, 0, SEEK_CUR);
    return at < 0 || size_ == 0 ? 0 : static_cast<double>(at) / static_cast<double>(size_);
}

bool LineFile::fill() {
    buffer_.erase(0, std::exchange(begin_, 0));
    char part[1 << 16];
    const size_t got = file_ ? file_->read(part, sizeof part) : 0;
    buffer_.append(part, got);
    return got != 0;
}

std::optional<std::string_view> LineFile::next() {
    line_++;
    size_t end;
    while ((end = buffer_.find('\n', begin_)) == std::string::npos) {
        if (buffer_.size() - begin_ > longest) {
            throw Malformed("a line of at most " + std::to_string(longest) + " bytes",
                            "a longer one");
        }
        if (!fill()) {
            break;
        }
    }
    if (end == std::string::npos && begin_ == buffer_.size()) {
        line_--;
        return std::nullopt;
    }
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    begin_ = std::min(begin_ + line.size() + 1, buffer_.size());
    return line.substr(0, line.size() - line.ends_with('\r'));
}

void LineFile::each(const std::function<void(std::string_view)> &take,
                    const std::function<void(double)> &report) {
    constexpr size_t between_reports = 4096;
    while (const std::optional<std::string_view> line = next()) {
        if (!line->empty()) {
            take(*line);
        }
        if (report && file_ && line_ % between_reports == 0) {
            report(file_->share());
        }
    }
}

namespace {

Failure not_copied(const std::string &what) {
    return Failure(
        {.stage = "run",
         .message = fmt::format("cannot copy standard input: {}: {}", what, std::strerror(errno)),
         .path = "standard input"});
}

// Without a name, so that nothing is left of the file. Some file systems lack such files.
int open_unnamed(const std::string &folder) {
    const int unnamed = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (unnamed >= 0) {
        return unnamed;
    }
    std::string name = folder + "/emm-XXXXXX";
    const int named = mkostemp(name.data(), O_CLOEXEC);
    if (named >= 0) {
        unlink(name.c_str());
    }
    return named;
}

} // namespace

std::string temporary_folder() {
    const char *const folder = std::getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

Input::Input(const std::string &name) : path_(name), name_(name) {
    if (name == "-") {
        name_ = "standard input";
        copy();
    }
}

Input::~Input() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

void Input::copy() {
    const std::string folder = temporary_folder();
    descriptor_ = open_unnamed(folder);
    if (descriptor_ < 0) {
        throw not_copied(folder);
    }
    Progress progress;
    Pace pace;
    uint64_t bytes = 0;
    static char part[1 << 16];
    ssize_t got;
    while ((got = read_some(STDIN_FILENO, part, sizeof part)) > 0) {
        if (!observe::write_all(descriptor_, {part, static_cast<size_t>(got)})) {
            throw not_copied(folder);
        }
        bytes += static_cast<uint64_t>(got);
        if (pace.is_due()) {
            progress.show("reading standard input: " + in_bytes(bytes));
        }
    }
    if (got < 0) {
        throw not_copied("it cannot be read");
    }
    path_ = fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
}

} // namespace emm::tool
