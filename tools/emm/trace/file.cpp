#include "trace/file.h"

#include "problem.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace emm::tool {
namespace {

Failure unreadable(const std::string &path, std::string expected, std::string got) {
    Problem problem;
    problem.stage = "trace";
    problem.path = path;
    problem.message = path + ": expected " + expected + ", found " + got;
    problem.expected = std::move(expected);
    problem.got = std::move(got);
    return Failure(problem);
}

class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() { close(); }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int number() const { return number_; }
    void close() {
        if (number_ >= 0) {
            ::close(number_);
        }
        number_ = -1;
    }

private:
    int number_;
};

std::string read_all(int descriptor, const std::string &path) {
    std::string text;
    char buffer[1 << 16];
    ssize_t got;
    while ((got = read(descriptor, buffer, sizeof buffer)) != 0) {
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            throw unreadable(path, "a readable file", std::strerror(errno));
        }
        text.append(buffer, static_cast<size_t>(got));
    }
    return text;
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
        throw unreadable(path, "the gzip program, to unpack it", std::strerror(error));
    }
    return process;
}

std::string unpack(int descriptor, const std::string &path) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        throw unreadable(path, "a pipe from gzip", std::strerror(errno));
    }
    Descriptor out(ends[0]), in(ends[1]);
    const pid_t process = spawn_gzip(descriptor, in.number(), path);
    in.close();
    std::string text = read_all(out.number(), path);
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw unreadable(path, "a gzip file that is whole", "one that gzip cannot unpack");
    }
    return text;
}

} // namespace

std::string read_file(const std::string &path) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) {
        throw unreadable(path, "a trace file", std::strerror(errno));
    }
    return is_gzip(file.number()) ? unpack(file.number(), path) : read_all(file.number(), path);
}

} // namespace emm::tool
