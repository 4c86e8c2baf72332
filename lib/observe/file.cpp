#include "observe/file.h"

#include "observe/descriptors.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::observe {
namespace {

constexpr int at_once = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

std::string kind_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFIFO:
        return "a FIFO";
    case S_IFDIR:
        return "a folder";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return "not a regular file";
    }
}

// Describes open()'s error: for a FIFO without a reader, and for a socket, open() says "no such
// device".
std::string why_not(const std::string &path) {
    const int error = errno;
    struct stat status;
    if (error == ELOOP && lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
        return path + " is a symbolic link; expected a regular file";
    }
    if (error == ENXIO && stat(path.c_str(), &status) == 0) {
        return path + " is " + kind_of(status.st_mode) + "; expected a regular file";
    }
    return "cannot open " + path + ": " + std::strerror(error);
}

File checked(File file, const std::string &path, bool device_will_do, std::string &ret_reason) {
    struct stat status;
    if (fstat(file.number(), &status) != 0) {
        ret_reason = why_not(path);
        return File();
    }
    if (!S_ISREG(status.st_mode) && !(device_will_do && S_ISCHR(status.st_mode))) {
        ret_reason = path + " is " + kind_of(status.st_mode) + "; expected a regular file";
        return File();
    }
    return file;
}

File checked_own(File file, const std::string &path, bool device_will_do, std::string &ret_reason) {
    struct stat status;
    file = checked(std::move(file), path, device_will_do, ret_reason);
    if (file && fstat(file.number(), &status) != 0) {
        ret_reason = why_not(path);
        return File();
    }
    if (file && S_ISREG(status.st_mode) && status.st_uid != geteuid()) {
        ret_reason = fmt::format("{} belongs to another user, {}; expected {}", path, status.st_uid,
                                 geteuid());
        return File();
    }
    return file;
}

File open_noted(const std::string &path, int flags, mode_t mode) {
    const int all = O_RDWR | O_NOFOLLOW | at_once | flags;
    return File(make_own([&] { return open(path.c_str(), all, mode); }), true);
}

} // namespace

void File::close() {
    const int number = std::exchange(number_, -1);
    if (number >= 0) {
        noted_ ? forget_and_close(number) : static_cast<void>(::close(number));
    }
}

File open_to_read(const std::string &path, std::string &ret_reason) {
    File file(open(path.c_str(), O_RDONLY | at_once));
    if (!file) {
        ret_reason = why_not(path);
        return file;
    }
    return checked(std::move(file), path, false, ret_reason);
}

File open_to_append(const std::string &path, std::string &ret_reason) {
    File file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | at_once, 0666));
    if (!file) {
        ret_reason = why_not(path);
        return file;
    }
    file = checked_own(std::move(file), path, true, ret_reason);
    if (file) {
        fcntl(file.number(), F_SETFL, O_APPEND); // for a terminal, writers may wait, as always
    }
    return file;
}

File open_own(const std::string &path, Make make, std::string &ret_reason) {
    const mode_t mode = make == Make::by_owner_only ? 0644 : 0666;
    for (int attempt = 0; attempt < 100; ++attempt) {
        if (make != Make::no) {
            File made = open_noted(path, O_CREAT | O_EXCL, mode);
            if (made || errno != EEXIST) {
                ret_reason = made ? "" : why_not(path);
                return made;
            }
        }
        File file = open_noted(path, 0, 0);
        if (file) {
            return checked_own(std::move(file), path, false, ret_reason);
        }
        if (errno != ENOENT) {
            ret_reason = why_not(path);
            return file;
        }
        if (make == Make::no) {
            return file;
        }
    }
    ret_reason = path + " is created and deleted again and again";
    return File();
}

bool is_same(const File &one, const File &other) {
    struct stat left, right;
    return fstat(one.number(), &left) == 0 && fstat(other.number(), &right) == 0 &&
           left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

bool is_named(const File &file, const std::string &path) {
    struct stat opened, named;
    return fstat(file.number(), &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool lock_for_writing(const File &file) {
    struct flock wanted = {};
    wanted.l_type = F_WRLCK;
    wanted.l_whence = SEEK_SET;
    return fcntl(file.number(), F_OFD_SETLK, &wanted) == 0;
}

std::string with_process_id(std::string_view name) {
    std::string path;
    for (size_t i = 0; i < name.size(); ++i) {
        const bool is_id = name.substr(i, 2) == "%p";
        path += is_id ? fmt::format("{}", getpid()) : std::string(1, name[i]);
        i += is_id;
    }
    return path;
}

namespace {

constexpr int write_signals[] = {SIGXFSZ, SIGPIPE};

// Removes the pending signal of a write by this thread.
void forget(int signal) noexcept {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    const timespec at_once = {};
    sigtimedwait(&one, nullptr, &at_once);
}

} // namespace

WriteSignalsBlocked::WriteSignalsBlocked() noexcept {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : write_signals) {
        sigaddset(&blocked, signal);
    }
    sigpending(&pending_before_);
    pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
}

WriteSignalsBlocked::~WriteSignalsBlocked() {
    const int error = errno;
    sigset_t pending;
    sigpending(&pending);
    for (const int signal : write_signals) {
        if (sigismember(&pending, signal) && !sigismember(&pending_before_, signal)) {
            forget(signal);
        }
    }
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    errno = error;
}

} // namespace emm::observe
