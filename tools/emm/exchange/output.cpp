#include "exchange/output.h"

#include "observe/read_write.h"
#include "observe/text.h"
#include "problem.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace emm::tool {
namespace {

Failure not_written(const std::string &path, int error) {
    return Failure(
        {.stage = "run",
         .message = fmt::format("cannot write {}: {}",
                                path.empty() ? "standard output" : observe::one_line(path),
                                std::strerror(error)),
         .path = path});
}

// A link stays, and the file that it leads to is replaced.
std::string behind_links(const std::string &path) {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    return error ? path : real.string();
}

bool is_special(const std::string &path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// The path by which a file without a name can get one.
std::string own_name(int descriptor) {
    return fmt::format("/proc/self/fd/{}", descriptor);
}

mode_t usual_mode() {
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

} // namespace

Output::Output(const std::string &path, std::initializer_list<std::string> inputs)
    : path_(path.empty() ? "" : behind_links(path)), descriptor_(STDOUT_FILENO) {
    const auto is_output = [this](const std::string &input) {
        std::error_code none;
        return !path_.empty() && std::filesystem::equivalent(path_, input, none);
    };
    if (std::any_of(inputs.begin(), inputs.end(), is_output)) {
        throw Failure({.stage = "usage",
                       .message = fmt::format("-o {}: this is the file that is read; name another",
                                              observe::one_line(path)),
                       .path = path});
    }
    if (!path_.empty()) {
        open_file();
    }
}

Output::~Output() {
    if (!path_.empty() && descriptor_ >= 0) {
        close(descriptor_);
    }
    if (!temporary_.empty()) {
        unlink(temporary_.c_str());
    }
}

// A device or a FIFO is written to directly. A file first has no name, where the file system can do
// that, so that nothing is left of it even if this process is killed.
void Output::open_file() {
    if (is_special(path_)) {
        descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } else {
        const std::string folder = std::filesystem::path(path_).parent_path();
        descriptor_ = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC,
                           usual_mode());
        is_unnamed_ = descriptor_ >= 0 && access(own_name(descriptor_).c_str(), F_OK) == 0;
        if (!is_unnamed_) {
            close(descriptor_); // without /proc, or without a name there
            temporary_ = path_ + ".XXXXXX";
            descriptor_ = mkostemp(temporary_.data(), O_CLOEXEC);
        }
    }
    if (descriptor_ < 0) {
        const int error = errno;
        temporary_.clear();
        throw not_written(path_, error);
    }
}

void Output::flush() {
    if (!observe::write_all(descriptor_, buffer_)) {
        throw not_written(path_, errno);
    }
    buffer_.clear();
}

// link() does not replace a file, so the file gets a name of its own and is renamed.
void Output::name_file() {
    if (is_unnamed_) {
        const std::string own = own_name(descriptor_);
        std::string name = fmt::format("{}.{}", path_, getpid());
        if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
            throw not_written(path_, errno);
        }
        temporary_ = std::move(name);
    } else if (!temporary_.empty() && fchmod(descriptor_, usual_mode()) != 0) {
        throw not_written(path_, errno);
    }
    if (!temporary_.empty() && rename(temporary_.c_str(), path_.c_str()) != 0) {
        throw not_written(path_, errno);
    }
    temporary_.clear();
}

void Output::finish() {
    flush();
    if (path_.empty()) {
        return;
    }
    name_file();
    if (close(std::exchange(descriptor_, -1)) != 0) {
        throw not_written(path_, errno);
    }
}

} // namespace emm::tool
