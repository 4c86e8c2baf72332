#include "print.h"

#include "exchange/output.h"
#include "observe/read_write.h"
#include "observe/text.h"

#include <fcntl.h>
#include <initializer_list>
#include <new>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

namespace emm::tool {

// Nothing is kept back for later, when a failure could no longer be told.
void print_as_is(std::string_view text) {
    Output output("");
    output.write(text);
    output.finish();
}

void print(std::string_view text) {
    print_as_is(plain_lines(text));
}

void print_json(const Json &json) {
    print_as_is(dump(json, 2) + "\n");
}

void print_error(std::string_view message) noexcept try {
    observe::write_all(STDERR_FILENO, plain_lines(message));
} catch (const std::bad_alloc &) {
    return;
}

std::string plain_lines(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        const bool is_last = end == std::string_view::npos;
        plain += observe::one_line(text.substr(0, end));
        plain += is_last ? "" : "\n";
        text.remove_prefix(is_last ? text.size() : end + 1);
    }
    return plain;
}

std::string in_quotes(std::string_view text) {
    constexpr size_t longest = 60;
    return "'" + observe::one_line(text.substr(0, longest)) +
           (text.size() > longest ? "...'" : "'");
}

// A single quote ends the quoted text, is escaped, and begins a new quoted text.
std::string shell_quoted(std::string_view text) {
    std::string result = "'";
    for (const char c : text) {
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return result + "'";
}

size_t terminal_width(int descriptor) {
    winsize size = {};
    return isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

WriteSignalsIgnored::WriteSignalsIgnored() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &pipe_);
    sigaction(SIGXFSZ, &ignore, &size_);
}

void WriteSignalsIgnored::restore() {
    if (!is_restored_) {
        sigaction(SIGPIPE, &pipe_, nullptr);
        sigaction(SIGXFSZ, &size_, nullptr);
    }
    is_restored_ = true;
}

// A new descriptor gets the lowest free number, which is the closed one.
void hold_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) < 0) {
            const bool is_input = descriptor == STDIN_FILENO;
            static_cast<void>(open("/dev/null", (is_input ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
        }
    }
}

} // namespace emm::tool
