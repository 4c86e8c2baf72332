#include "run/program.h"

#include "observe/read_write.h"
#include "observe/text.h"
#include "run/preload.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace emm::tool {
namespace {

// Where execvp looks if PATH is unset.
constexpr const char *default_folders = "/bin:/usr/bin";

// The kernel reads so many bytes of a script's first line, and follows so many interpreters.
constexpr size_t longest_first_line = 256;
constexpr int most_interpreters = 5;

// 0 if the file can be executed, as far as its mode says.
int error_of(const std::string &path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) {
        return errno;
    }
    if (S_ISDIR(status.st_mode)) {
        return EISDIR;
    }
    if (!S_ISREG(status.st_mode)) {
        return EACCES;
    }
    return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

// A folder of PATH that this user cannot search counts as empty.
bool is_there(const std::string &path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0;
}

class OpenedProgram {
public:
    explicit OpenedProgram(const std::string &path)
        : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~OpenedProgram() {
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
    }
    OpenedProgram(const OpenedProgram &) = delete;
    OpenedProgram &operator=(const OpenedProgram &) = delete;

    // A program may be executable and not readable.
    bool is_readable() const { return descriptor_ >= 0; }
    std::string read(uint64_t offset, size_t size) const;
    FileRights rights() const;

private:
    int descriptor_;
};

std::string OpenedProgram::read(uint64_t offset, size_t size) const {
    std::string bytes(size, '\0');
    bytes.resize(observe::read_at(descriptor_, offset, bytes.data(), size));
    return bytes;
}

FileRights OpenedProgram::rights() const {
    struct stat status = {};
    struct statvfs mount = {};
    fstat(descriptor_, &status);
    const bool is_nosuid = fstatvfs(descriptor_, &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0;
    return {.mode = status.st_mode,
            .owner = status.st_uid,
            .group = status.st_gid,
            .has_capabilities = fgetxattr(descriptor_, "security.capability", nullptr, 0) > 0,
            .are_ignored = is_nosuid || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1};
}

// "" for other files, such as a shell script without a first line for it.
std::string obstacle_of(const OpenedProgram &file) {
    const bool is_elf = file.read(0, SELFMAG) == ELFMAG;
    const std::string obstacle = rights_obstacle(file.rights(), {getuid(), getgid()});
    if (!is_elf || !obstacle.empty()) {
        return is_elf ? obstacle : "";
    }
    return elf_obstacle([&](uint64_t offset, size_t size) { return file.read(offset, size); });
}

std::vector<std::string> words_of(std::string_view text, size_t most) {
    constexpr const char *blanks = " \t";
    std::vector<std::string> words;
    size_t begin = text.find_first_not_of(blanks);
    while (begin != std::string_view::npos) {
        const bool is_last = words.size() + 1 == most;
        const size_t end = is_last ? text.find_last_not_of(blanks) + 1
                                   : std::min(text.find_first_of(blanks, begin), text.size());
        words.emplace_back(text.substr(begin, end - begin));
        begin = text.find_first_not_of(blanks, end);
    }
    return words;
}

std::string base_name(const std::string &path) {
    return path.substr(path.rfind('/') + 1);
}

// The next program to look at: a script's interpreter, or the program that env starts in its place;
// "": none.
std::string next_program(const std::vector<std::string> &interpreter) {
    if (interpreter.size() < 2 || base_name(interpreter.front()) != "env") {
        return interpreter.empty() ? "" : interpreter.front();
    }
    const std::string name = program_of_env(interpreter[1]);
    const FoundProgram found = find_program(name, std::getenv("PATH"));
    return name.empty() || found.error != 0 ? interpreter.front() : found.path;
}

std::string subject(const std::string &program, const std::string &at) {
    return at == program ? program : fmt::format("{}: its interpreter {}", program, at);
}

} // namespace

FoundProgram find_program(const std::string &name, const char *folders) {
    if (name.empty() || name.find('/') != std::string::npos) {
        return {name, name.empty() ? ENOENT : error_of(name)};
    }
    FoundProgram last = {name, ENOENT};
    for (const std::string &folder : observe::split(folders ? folders : default_folders, ':')) {
        const std::string path = (folder.empty() ? "." : folder) + "/" + name;
        const int error = error_of(path);
        if (error == 0) {
            return {path, 0};
        }
        if (last.error == ENOENT && is_there(path)) {
            last = {path, error};
        }
    }
    return last;
}

std::vector<std::string> interpreter_of(std::string_view start) {
    if (start.substr(0, 2) != "#!") {
        return {};
    }
    const std::string_view line = start.substr(2, longest_first_line - 2);
    return words_of(line.substr(0, line.find_first_of(std::string_view("\n\0", 2))), 2);
}

std::string program_of_env(std::string_view argument) {
    const bool is_split = argument.substr(0, 2) == "-S";
    if (!is_split) {
        return argument.substr(0, 1) == "-" ? "" : std::string(argument);
    }
    for (const std::string &word : words_of(argument.substr(2), SIZE_MAX)) {
        if (word.front() != '-' && word.find('=') == std::string::npos) {
            return word;
        }
    }
    return "";
}

void check_program(const std::string &path) {
    std::string at = path;
    for (int depth = 0; depth < most_interpreters && !at.empty(); ++depth) {
        if (const int error = error_of(at)) {
            throw Refusal(program_unusable, fmt::format("cannot run {}: {}", subject(path, at),
                                                        std::strerror(error)));
        }
        const OpenedProgram file(at);
        if (!file.is_readable()) {
            return;
        }
        const std::string obstacle = obstacle_of(file);
        if (!obstacle.empty()) {
            throw Refusal(program_unusable,
                          fmt::format("cannot run {} on emm: {}", subject(path, at), obstacle));
        }
        at = next_program(interpreter_of(file.read(0, longest_first_line)));
    }
}

} // namespace emm::tool
