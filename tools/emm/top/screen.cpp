#include "top/screen.h"

#include "observe/read_write.h"

#include <cerrno>
#include <ctime>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace emm::tool::top {
namespace {

// The alternate buffer, without a cursor; and back.
constexpr std::string_view enter_codes = "\033[?1049h\033[?25l",
                           leave_codes = "\033[?25h\033[?1049l";

sigset_t handled_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
        sigaddset(&set, each);
    }
    return set;
}

// The size of a terminal; 0 by 0 for other descriptors.
Size terminal_size(int descriptor) {
    winsize size = {};
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) {
        return {};
    }
    return {size.ws_col, size.ws_row};
}

} // namespace

Screen::Screen() {
    const sigset_t handled = handled_signals();
    sigprocmask(SIG_BLOCK, &handled, &mask_before_);
    signals_ = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    tcgetattr(STDIN_FILENO, &before_);
    enter();
}

Screen::~Screen() {
    leave();
    close(signals_);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Screen::enter() {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_oflag |= OPOST | ONLCR;
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    observe::write_all(STDOUT_FILENO, enter_codes);
}

void Screen::leave() {
    observe::write_all(STDOUT_FILENO, leave_codes);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

// As Ctrl-Z asks for.
void Screen::stop() {
    leave();
    raise(SIGSTOP);
    enter();
}

// 80 by 24 where the terminal does not tell.
Size Screen::size() const {
    const Size size = terminal_size(STDOUT_FILENO);
    return {size.width == 0 ? 80 : size.width, size.height == 0 ? 24 : size.height};
}

// Writes the page from the upper left corner on, and clears the rest.
bool Screen::show(const std::string &page) {
    std::string text = "\033[H";
    for (size_t at = 0; at < page.size();) {
        const size_t end = std::min(page.find('\n', at), page.size());
        text += page.substr(at, end - at) + "\033[K";
        text += end + 1 < page.size() ? "\n" : "";
        at = end + 1;
    }
    return observe::write_all(STDOUT_FILENO, text + "\033[J");
}

Event Screen::read_signal() {
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof info) != sizeof info) {
        return Event::time_out;
    }
    if (info.ssi_signo == SIGTSTP) {
        stop();
        return Event::resized;
    }
    if (info.ssi_signo == SIGWINCH) {
        return Event::resized;
    }
    signal_ = static_cast<int>(info.ssi_signo);
    return Event::ended;
}

Event Screen::read_key() {
    const ssize_t got = read(STDIN_FILENO, &key_, 1);
    return got == 1 ? Event::key : Event::ended; // the terminal is gone
}

Event Screen::wait(double seconds) {
    pollfd waiting[] = {{signals_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    const int ready = poll(waiting, 2, static_cast<int>(seconds * 1000));
    if (ready > 0 && waiting[0].revents != 0) {
        return read_signal();
    }
    return ready > 0 && waiting[1].revents != 0 ? read_key() : Event::time_out;
}

} // namespace emm::tool::top
