#pragma once

#include <array>
#include <string>

namespace emm::guard {

// The caller's stack, without emm's own frames.
class Caller {
public:
    static Caller here();
    std::string text() const;

private:
    std::array<void *, 16> frames_ = {};
    int count_ = 0;
};

} // namespace emm::guard
