#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>
#include <string>
#include <string_view>
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

// Calls that are to fail: "cuMemAlloc@3" the third one, "cuMemAlloc@3+" all from there on,
// "any@7" the seventh call of any entry, "cuMemFree@1:700" with that CUresult.
class Faults {
public:
    // What is wrong with the text, "" if nothing.
    std::string arm(std::string_view text);
    void disarm() { armed_.clear(); }
    bool armed() const { return !armed_.empty(); }

    // Counts the call, a name of static storage; what it is to answer.
    CUresult next(const char *call);

    // How often a call was made to fail, and the latest one: "" if none.
    uint64_t injected() const { return injected_; }
    uint64_t injected(std::string_view call) const;
    const char *last() const { return last_; }

private:
    struct Fault {
        std::string call;
        uint64_t at = 0, calls = 0;
        bool onwards = false;
        int code = 0; // 0: what suits the call
    };
    std::vector<Fault> armed_;
    std::map<std::string_view, uint64_t> injected_into_;
    uint64_t injected_ = 0;
    const char *last_ = "";
};

} // namespace simcuda
