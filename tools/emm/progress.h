#pragma once

#include <string>

namespace emm::tool {

// One line on standard error with the progress of the work; no output unless standard error is a
// terminal.
class Progress {
public:
    Progress();
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    // `share` goes from 0 to 1. Without a share, the length of the work is unknown.
    void show(const std::string &what, double share);
    void show(const std::string &what);
    void clear();

private:
    bool terminal_;
    bool shown_ = false;
};

// For work that calls often: true every fifth of a second.
class Pace {
public:
    bool is_due();

private:
    double last_ = 0;
};

} // namespace emm::tool
