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

    // `share` goes from 0 to 1. Without it, how long the work takes is not known.
    void show(const std::string &what, double share);
    void show(const std::string &what);
    void clear();

private:
    bool terminal_;
    bool shown_ = false;
};

// For work that asks often: true every fifth of a second.
class Pace {
public:
    bool is_due();

private:
    double last_ = 0;
};

} // namespace emm::tool
