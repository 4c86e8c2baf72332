#include "top/proc.h"

#include "observe/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emm::tool::top {

std::string read_proc(const std::string &path) {
    std::string text;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char bytes[16384];
    for (ssize_t got = 0; file >= 0 && (got = read(file, bytes, sizeof bytes)) > 0;) {
        text.append(bytes, static_cast<size_t>(got));
    }
    if (file >= 0) {
        close(file);
    }
    return text;
}

std::string program_of(int64_t pid) {
    std::string name = read_proc(fmt::format("/proc/{}/comm", pid));
    name.erase(name.find_last_not_of('\n') + 1);
    return observe::one_line(name);
}

bool is_of_this_user(int64_t pid) {
    struct stat status;
    return stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 && status.st_uid == geteuid();
}

// "PID (NAME) STATE ...", where the name may have any bytes.
bool is_stopped(int64_t pid) {
    const std::string text = read_proc(fmt::format("/proc/{}/stat", pid));
    const size_t end = text.rfind(')');
    return end != std::string::npos && end + 2 < text.size() &&
           (text[end + 2] == 'T' || text[end + 2] == 't');
}

} // namespace emm::tool::top
