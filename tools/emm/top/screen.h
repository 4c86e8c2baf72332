#pragma once

#include "top/view.h"

#include <csignal>
#include <string>
#include <termios.h>

namespace emm::tool::top {

// The event that ended the screen's wait.
enum class Event { time_out, key, resized, ended };

// A terminal that shows one page, in the alternate buffer. The destructor restores the terminal,
// and so does a stop of the tool. Signals that end, stop or resize come as events.
class Screen {
public:
    Screen();
    ~Screen();
    Screen(const Screen &) = delete;
    Screen &operator=(const Screen &) = delete;

    Size size() const;
    // False: the terminal is gone.
    bool show(const std::string &page);
    Event wait(double seconds);
    char key() const { return key_; } // of the last Event::key
    // The signal that has ended the screen, to be raised again once the terminal is restored; 0:
    // none.
    int signal() const { return signal_; }

private:
    void enter();
    void leave();
    void stop();
    Event read_signal();
    Event read_key();

    termios before_ = {};
    sigset_t mask_before_ = {};
    int signals_ = -1;
    char key_ = 0;
    int signal_ = 0;
};

} // namespace emm::tool::top
