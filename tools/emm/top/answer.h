#pragma once

#include "top/process.h"

#include <string_view>

namespace emm::tool::top {

// Takes over what a process has answered. It may be any program of this user, so that whatever it
// says is made harmless; a message that is no answer becomes ret_process.problem.
void read_answer(std::string_view message, Process &ret_process);

} // namespace emm::tool::top
