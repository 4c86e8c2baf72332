#pragma once

#include "json.h"

#include <csignal>
#include <cstddef>
#include <string>
#include <string_view>

// What commands write to the terminal, or to what stands in its place.
// Texts from files, plugins and the command line, made fit to be shown (observe::one_line).
namespace emm::tool {

// Text for people, on standard output. Of control characters, line ends alone are written. Throws
// Failure unless all of it was taken.
void print(std::string_view text);

// The same with every byte as it is, for a shell.
void print_as_is(std::string_view text);

// One object for programs, on standard output. Throws Failure unless all of it was taken.
void print_json(const Json &json);

// Text for people, on standard error: what cannot be written there is lost.
void print_error(std::string_view text) noexcept;

// Line by line: of control characters, line ends alone are left.
std::string plain_lines(std::string_view text);

// What a file has in a place: in quotes, on one line, and short.
std::string in_quotes(std::string_view text);

// As one word of a shell's, whatever is in it.
std::string shell_quoted(std::string_view text);

// How many columns the terminal behind a descriptor has; 0: it is none, or does not say.
size_t terminal_width(int descriptor);

// While it lives, a write to a closed pipe, or beyond the largest size of a file, fails and ends no
// process: the command says what it could not write.
class WriteSignalsIgnored {
public:
    WriteSignalsIgnored();
    ~WriteSignalsIgnored() { restore(); }
    WriteSignalsIgnored(const WriteSignalsIgnored &) = delete;
    WriteSignalsIgnored &operator=(const WriteSignalsIgnored &) = delete;

    // Sooner: a program that takes this one's place would inherit it.
    void restore();

private:
    struct sigaction pipe_ = {}, size_ = {};
    bool is_restored_ = false;
};

// A standard descriptor that is closed is opened so that its use fails: a file that is opened later
// must not take its number. Programs that are started still find it closed.
void hold_standard_descriptors();

} // namespace emm::tool
