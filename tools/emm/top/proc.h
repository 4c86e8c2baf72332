#pragma once

#include <cstdint>
#include <string>

namespace emm::tool::top {

// The text of a file of /proc; empty: it cannot be read.
std::string read_proc(const std::string &path);

// What /proc tells of a process: its name, "" if there is none; whether this user has started it;
// whether it is stopped.
std::string program_of(int64_t pid);
bool is_of_this_user(int64_t pid);
bool is_stopped(int64_t pid);

} // namespace emm::tool::top
