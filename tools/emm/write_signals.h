#pragma once

#include <csignal>

namespace emm::tool {

// While it lives, a write to a closed pipe, or beyond the largest size of a file, fails and ends no
// process: the command says what it could not write.
class WriteSignalsIgnored {
public:
    WriteSignalsIgnored();
    ~WriteSignalsIgnored() { restore(); }
    WriteSignalsIgnored(const WriteSignalsIgnored &) = delete;
    WriteSignalsIgnored &operator=(const WriteSignalsIgnored &) = delete;

    // Sooner: a program that takes this one's place would inherit it.
    void restore();

private:
    struct sigaction pipe_ = {}, size_ = {};
    bool is_restored_ = false;
};

// A standard descriptor that is closed is opened so that its use fails: a file that is opened later
// must not take its number. Programs that are started still find it closed.
void hold_standard_descriptors();

} // namespace emm::tool
