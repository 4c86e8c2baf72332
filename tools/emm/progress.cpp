#include "progress.h"

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
    if (terminal_) {
        write_line(fmt::format("\r\x1b[K{} {:3.0f} %", what, 100 * std::clamp(share, 0.0, 1.0)));
        shown_ = true;
    }
}

void Progress::clear() {
    if (shown_) {
        write_line("\r\x1b[K");
        shown_ = false;
    }
}

} // namespace emm::tool
