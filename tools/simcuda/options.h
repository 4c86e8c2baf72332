#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace simcuda {

enum class Progress { eager, lazy, random, timed };

// What EMM_SIM says.
struct Options {
    int devices = 1;
    uint64_t memory = uint64_t(80) << 30;
    Progress progress = Progress::eager;
    uint64_t seed = 1;
    uint64_t duration = 10; // microseconds, of timed work
    bool abort_on_race = true;
    bool abort_on_misuse = true;
    int driver = 13000;
    bool peers = true;
    bool late = false;
    bool host_access = true;
    bool mapping = true;  // of host memory
    bool kernels = false; // they load and are launched, and do nothing
    std::vector<std::string> faults;
    std::map<std::string, uint64_t> latency; // microseconds, by entry
};

// Reads "key=value,..." over what is in `options`. On failure the answer says what is wrong.
std::string read_options(const char *text, Options &options);

} // namespace simcuda
