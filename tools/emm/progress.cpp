#include "progress.h"

#include "clock.h"
#include "observe/text.h"
#include "print.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {
namespace {

void write_line(const std::string &text) {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
}

// A line that wraps could not be cleared.
std::string first_columns(std::string text) {
    const size_t width = terminal_width(STDERR_FILENO);
    if (width != 0 && text.size() >= width) {
        text.resize(width - 1);
    }
    return observe::one_line(text); // a letter may be cut
}

bool obeys_escapes() {
    const char *const kind = std::getenv("TERM");
    return isatty(STDERR_FILENO) == 1 && kind && std::strcmp(kind, "dumb") != 0;
}

} // namespace

Progress::Progress() : terminal_(obeys_escapes()) {}

Progress::~Progress() {
    clear();
}

void Progress::show(const std::string &what, double share) {
    show(fmt::format("{} {:3.0f} %", what, 100 * std::clamp(share, 0.0, 1.0)));
}

void Progress::show(const std::string &what) {
    if (terminal_) {
        write_line("\r\x1b[K" + first_columns(observe::one_line(what)));
        shown_ = true;
    }
}

void Progress::clear() {
    if (shown_) {
        write_line("\r\x1b[K");
        shown_ = false;
    }
}

bool Pace::is_due() {
    constexpr double between = 0.2;
    const double now = seconds_now();
    const bool due = now - last_ >= between;
    last_ = due ? now : last_;
    return due;
}

} // namespace emm::tool
