// What `emm run` says on standard error, within the program.
#pragma once

namespace emm::run {

// One line behind "emm run: ". Texts of the environment, of paths and of programs may be in it.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// In place: line ends and tabs become spaces, other control characters, those that turn the
// direction of writing, and bytes that are no UTF-8 become '?'.
void make_one_line(char *text);

} // namespace emm::run
