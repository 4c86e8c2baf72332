// Lines of `emm run` on standard error, from within the program.
#pragma once

namespace emm::run {

// Writes one line that begins with "emm run: ". Escapes texts from the environment and from paths.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Changes the text in place: line ends and tabs become spaces. Other control characters, those that
// turn the direction of writing, and bytes that are no UTF-8 become '?'.
void make_one_line(char *text);

} // namespace emm::run
