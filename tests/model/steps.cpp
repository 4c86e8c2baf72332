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
char title[96]; // tells how to repeat it
size_t said = 0;

void write_line(const char *line) {
    if (write(STDERR_FILENO, line, std::strlen(line)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        _exit(1);
    }
}

void tell(int signal) {
    tell_steps(kept / 4);
    std::signal(signal, SIG_DFL);
    raise(signal);
}

} // namespace

void begin_steps(const Settings &settings, size_t seed) {
    said = 0;
    std::snprintf(title, sizeof title, "seed=%zu fail_call=%zu fail_nth=%zu", seed,
                  settings.fail_call, settings.fail_nth);
}

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(lines[said++ % kept], longest - 1, format, arguments);
    va_end(arguments);
}

// In a signal handler, too.
void tell_steps(size_t last) {
    const size_t first = said - std::min({said, kept, last});
    write_line(title);
    for (size_t i = first; i < said; i++) {
        write_line(lines[i % kept]);
    }
}

void tell_steps_at_a_crash() {
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) {
        std::signal(signal, &tell);
    }
}

} // namespace model
