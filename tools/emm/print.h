#pragma once

#include "json.h"

#include <csignal>
#include <cstddef>
#include <string>
#include <string_view>

// Output of commands: to the terminal, or to the file or pipe in its place. Texts from files,
// plugins and the command line are made fit to be shown (observe::one_line).
namespace emm::tool {

// Text for people, on standard output. Of control characters, only line ends are written. Throws
// Failure unless all of it was taken.
void print(std::string_view text);

// The same with every byte unchanged, for a shell.
void print_as_is(std::string_view text);

// One object for programs, on standard output. Throws Failure unless all of it was taken.
void print_json(const Json &json);

// Text for people, on standard error. A failure to write is ignored.
void print_error(std::string_view text) noexcept;

// Keeps line ends, and replaces all other control characters.
std::string plain_lines(std::string_view text);

// A text from a file: in quotes, on one line, and short.
std::string in_quotes(std::string_view text);

// The text as one word for a shell, whatever its characters.
std::string shell_quoted(std::string_view text);

// The columns of the terminal behind a descriptor; 0: it is no terminal, or does not tell.
size_t terminal_width(int descriptor);

// While this object lives, a write to a closed pipe, or beyond the largest size of a file, fails
// and ends no process: the command reports the failed write.
class WriteSignalsIgnored {
public:
    WriteSignalsIgnored();
    ~WriteSignalsIgnored() { restore(); }
    WriteSignalsIgnored(const WriteSignalsIgnored &) = delete;
    WriteSignalsIgnored &operator=(const WriteSignalsIgnored &) = delete;

    // Ends the effect early: a program that takes this process's place would inherit it.
    void restore();

private:
    struct sigaction pipe_ = {}, size_ = {};
    bool is_restored_ = false;
};

// Opens closed standard descriptors so that their use fails: a file that is opened later must not
// take their numbers. Started programs still find them closed.
void hold_standard_descriptors();

} // namespace emm::tool
