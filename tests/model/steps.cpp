// The latest steps, as text.
#include "world.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace model {
namespace {

constexpr size_t kept = 256, longest = 160;
char lines[kept][longest];
size_t said = 0, told = kept;

void tell(int signal) {
    tell_steps(told);
    std::signal(signal, SIG_DFL);
    raise(signal);
}

} // namespace

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(lines[said++ % kept], longest - 1, format, arguments);
    va_end(arguments);
}

// In a signal handler, too.
void tell_steps(size_t last) {
    const size_t first = said - std::min({said, kept, last});
    for (size_t i = first; i < said; i++) {
        const char *const line = lines[i % kept];
        if (write(STDERR_FILENO, line, std::strlen(line)) < 0 ||
            write(STDERR_FILENO, "\n", 1) < 0) {
            return;
        }
    }
}

void tell_steps_at_a_crash() {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) {
        std::signal(signal, &tell);
    }
}

} // namespace model
