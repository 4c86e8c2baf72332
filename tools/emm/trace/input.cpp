#include "trace/input.h"

#include "problem.h"
#include "progress.h"
#include "table.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {
namespace {

Failure not_copied(const std::string &what) {
    Problem problem;
    problem.stage = "run";
    problem.path = "standard input";
    problem.message =
        fmt::format("standard input cannot be copied: {}: {}", what, std::strerror(errno));
    return Failure(problem);
}

std::string temporary_folder() {
    const char *const folder = std::getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

// Without a name, so that nothing is left of it. Some file systems have no such files.
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

ssize_t read_some(char *into, size_t most) {
    ssize_t got;
    while ((got = read(STDIN_FILENO, into, most)) < 0 && errno == EINTR) {
    }
    return got;
}

bool write_all(int descriptor, const char *bytes, size_t count) {
    while (count > 0) {
        const ssize_t done = write(descriptor, bytes, count);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        bytes += done > 0 ? done : 0;
        count -= done > 0 ? static_cast<size_t>(done) : 0;
    }
    return true;
}

} // namespace

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
    while ((got = read_some(part, sizeof part)) > 0) {
        if (!write_all(descriptor_, part, static_cast<size_t>(got))) {
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
