#pragma once

#include <string>

namespace emm::tool {

// A file that the user named, or standard input for "-", which is copied to a file without a name:
// several processes read it, and some readers read it twice. Nothing is left of that file when the
// process ends, however it ends. Throws Failure.
class Input {
public:
    explicit Input(const std::string &name);
    ~Input();
    Input(const Input &) = delete;
    Input &operator=(const Input &) = delete;

    // Of a regular file, for this process and its children.
    const std::string &path() const { return path_; }

    // For messages.
    const std::string &name() const { return name_; }

private:
    void copy();

    std::string path_, name_;
    int descriptor_ = -1;
};

} // namespace emm::tool
