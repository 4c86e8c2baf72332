#include "channel.h"

#include "clock.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

namespace emm::tool {

Channel::~Channel() {
    close(in_);
    close_out();
}

void Channel::close_out() {
    if (out_ >= 0) {
        close(out_);
    }
    out_ = -1;
}

bool Channel::send(const Json &message) {
    const std::string line = dump(message) + "\n";
    size_t sent = 0;
    while (sent < line.size()) {
        const ssize_t wrote = write(out_, line.data() + sent, line.size() - sent);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        sent += wrote > 0 ? static_cast<size_t>(wrote) : 0;
    }
    return true;
}

std::optional<Json> Channel::receive(double timeout, End &ret_end) {
    const double until = seconds_now() + timeout;
    for (;;) {
        const size_t end = buffer_.find('\n');
        if (end != std::string::npos) {
            const std::string line = buffer_.substr(0, end);
            buffer_.erase(0, end + 1);
            ret_end = End::none;
            return Json::parse(line);
        }
        pollfd waiting = {in_, POLLIN, 0};
        const double left = until - seconds_now();
        const int ready = poll(&waiting, 1, left > 0 ? static_cast<int>(left * 1000) + 1 : 0);
        if (ready == 0) {
            ret_end = End::timeout;
            return std::nullopt;
        }
        char part[4096];
        const ssize_t got = ready > 0 ? read(in_, part, sizeof part) : -1;
        if (got == 0 || (got < 0 && errno != EINTR)) {
            ret_end = End::closed;
            return std::nullopt;
        }
        buffer_.append(part, got > 0 ? static_cast<size_t>(got) : 0);
    }
}

} // namespace emm::tool
