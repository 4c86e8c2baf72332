#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// EMM_LIMIT: how much memory of each device this process may have. All functions here are pure.
namespace emm::driver {

struct Limit {
    std::string device; // "GPU-..." or the beginning of that; "": every other device
    uint64_t bytes = 0;
};

// "8 GiB"; "79.19 GiB (85029158912 bytes)" if that is not exact.
std::string size_text(uint64_t bytes);

// "1.00 GiB of device 0 are in use, which stay; ...": for a bound that is now less than the bytes
// in use.
std::string above_limit_text(uint64_t used, std::string_view device);

// Parses a text like EMM_LIMIT's. Returns "" or the error: "expected ..., found ...".
std::string parse_limits(std::string_view text, std::vector<Limit> &ret_limits);

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as written by NVML and nvidia-smi.
std::string uuid_text(const uint8_t *uuid);

struct LimitedDevice {
    std::string uuid;
    uint64_t bytes = 0;
    uint64_t bound = 0; // out; 0: none
};

// Gives each device its bound. Returns "", or the error like parse_limits.
std::string apply_limits(const std::vector<Limit> &limits, std::vector<LimitedDevice> &devices);

} // namespace emm::driver
