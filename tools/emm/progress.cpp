#include "progress.h"

#include "clock.h"
#include "observe/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

namespace emm::tool {
namespace {

void write_line(const std::string &text) {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
}

} // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    clear();
}

void Progress::show(const std::string &what, double share) {
    show(fmt::format("{} {:3.0f} %", what, 100 * std::clamp(share, 0.0, 1.0)));
}

void Progress::show(const std::string &what) {
    if (terminal_) {
        write_line("\r\x1b[K" + observe::one_line(what));
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
