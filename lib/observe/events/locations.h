#pragma once

#include "observe/events/module.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace emm::observe {

// Return addresses as people read them: "/usr/bin/train+0x1234 (step(int)+0x42)", and behind that
// the calls of Python.
class Locations {
public:
    void add(Module module);
    void add(std::string python_calls); // the next number

    // Ready for a CSV field. Valid until the next call.
    const std::string &of(uint64_t caller, uint32_t python);

private:
    std::string make(uint64_t caller) const;

    std::vector<Module> modules_;
    std::vector<std::string> python_calls_;
    std::unordered_map<uint64_t, std::string> known_;
    std::map<std::pair<uint64_t, uint32_t>, std::string> known_of_python_;
};

} // namespace emm::observe
