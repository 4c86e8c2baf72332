#pragma once

#include <string>

namespace emm::tool {

// One line on standard error that shows how far the work is; nothing if that is no terminal.
class Progress {
public:
    Progress();
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    // `share` goes from 0 to 1.
    void show(const std::string &what, double share);
    void clear();

private:
    bool terminal_;
    bool shown_ = false;
};

} // namespace emm::tool
