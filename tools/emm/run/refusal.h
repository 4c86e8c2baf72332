#pragma once

#include "observe/text.h"

#include <stdexcept>
#include <string>

namespace emm::tool {

// The exit statuses of env, nohup and the shell.
inline constexpr int program_unusable = 126, program_missing = 127;

// Why a program is not started, on one line, and the exit status that says so.
class Refusal : public std::runtime_error {
public:
    Refusal(int status, const std::string &sentence)
        : std::runtime_error(observe::one_line(sentence)), status_(status) {}
    int status() const { return status_; }

private:
    int status_;
};

} // namespace emm::tool
