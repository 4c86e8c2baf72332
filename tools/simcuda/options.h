#pragma once

#include <cstdint>
#include <cuda.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace simcuda {

enum class Progress { eager, lazy, random, timed };

// The settings in EMM_SIM.
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

// Reads "key=value,..." over the values in `options`. On failure the answer says the reason.
std::string read_options(const char *text, Options &options);

// Calls that must fail: "cuMemAlloc@3" the third call, "cuMemAlloc@3+" all from the third on,
// "any@7" the seventh call of any entry, "cuMemFree@1:700" the first with that CUresult.
class Faults {
public:
    // Describes the fault of the text; "": the text is right.
    std::string arm(std::string_view text);
    void disarm() { armed_.clear(); }
    bool armed() const { return !armed_.empty(); }

    // Counts the call, whose name has static storage. Gives its result.
    CUresult next(const char *call);

    // How many calls were made to fail, and the latest of them: "" if none.
    uint64_t injected() const { return injected_; }
    uint64_t injected(std::string_view call) const;
    const char *last() const { return last_; }

private:
    struct Fault {
        std::string call;
        uint64_t at = 0, calls = 0;
        bool onwards = false;
        int code = 0; // 0: a code that suits the call
    };
    std::vector<Fault> armed_;
    std::map<std::string_view, uint64_t> injected_into_;
    uint64_t injected_ = 0;
    const char *last_ = "";
};

} // namespace simcuda
