#pragma once

#include "observe/events/module.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace emm::observe {

// Return addresses as people read them: "/usr/bin/train+0x1234 (step(int)+0x42)".
class Locations {
public:
    void add(Module module);

    // Ready for a CSV field. Valid until the next call.
    const std::string &of(uint64_t caller);

private:
    std::string make(uint64_t caller) const;

    std::vector<Module> modules_;
    std::unordered_map<uint64_t, std::string> known_;
};

} // namespace emm::observe
