#pragma once

#include "json.h"

#include <optional>
#include <string>

namespace emm::tool {

// One JSON object a line, over a pair of descriptors. A timeout is in seconds.
class Channel {
public:
    Channel(int in, int out) : in_(in), out_(out) {}
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // False if the reader has gone.
    bool send(const Json &message);

    enum class End { none, closed, timeout };
    // Nothing at the end of the conversation, and `ret_end` says why.
    std::optional<Json> receive(double timeout, End &ret_end);

    void close_out();
    int out() const { return out_; }

private:
    int in_, out_;
    std::string buffer_;
};

} // namespace emm::tool
