#pragma once

#include "observe/text.h"

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emm::tool {

// The place of a program, as execvp looks for it. `error` is 0, ENOENT, or the errno that says why
// the first file of that name cannot be run.
struct FoundProgram {
    std::string path;
    int error = 0;
};

// `folders` is the value of PATH; NULL: unset.
FoundProgram find_program(const std::string &name, const char *folders);

// The interpreter in a script's first line, and its argument; empty: there is no such line. `start`
// is the start of the file.
std::vector<std::string> interpreter_of(std::string_view start);

// The program that `env` starts for the argument of such a line, as in "-S python3 -u"; "": none.
std::string program_of_env(std::string_view argument);

// Throws Refusal unless a library can be preloaded into the program at `path`, an existing file.
// For a script, its interpreter counts.
void check_program(const std::string &path);

// The exit statuses of env, nohup and the shell.
inline constexpr int program_unusable = 126, program_missing = 127;

// Why a program is not started, on one line, and the exit status for it.
class Refusal : public std::runtime_error {
public:
    Refusal(int status, const std::string &sentence)
        : std::runtime_error(observe::one_line(sentence)), status_(status) {}
    int status() const { return status_; }

private:
    int status_;
};

} // namespace emm::tool
