#include "driver/limit.h"

#include "observe/text.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <fmt/format.h>

namespace emm::driver {
namespace {

constexpr uint64_t least_limit = uint64_t(2) << 20; // the driver itself takes at least this much
constexpr std::string_view gpu = "GPU-";

std::string expected(std::string_view what, std::string_view found) {
    return fmt::format("expected {}, found '{}'", what, observe::one_line(found, 100));
}

std::string parse_limit(std::string_view row, Limit &ret_limit) {
    const size_t equals = row.find('=');
    const std::string_view device = equals == row.npos ? "*" : row.substr(0, equals);
    const std::string size(equals == row.npos ? row : row.substr(equals + 1));
    const bool is_gpu = device.size() > gpu.size() && device.substr(0, gpu.size()) == gpu;
    if ((device != "*" && !is_gpu) || !emm_parse_size(size.c_str(), &ret_limit.bytes)) {
        return expected("a size such as 8GiB (in KiB, MiB, GiB or TiB), or GPU-UUID=8GiB;*=16GiB",
                        row);
    }
    if (ret_limit.bytes < least_limit) {
        return expected("a size of at least 2MiB", row);
    }
    ret_limit.device = is_gpu ? device : "";
    return "";
}

bool is_of(const Limit &limit, const LimitedDevice &device) {
    return device.uuid.compare(0, limit.device.size(), limit.device) == 0;
}

} // namespace

std::string size_text(uint64_t bytes) {
    const std::string text = observe::bytes_text(bytes);
    const size_t point = text.find(".00 ");
    uint64_t unit = 1;
    while (bytes / unit >= 1024) {
        unit *= 1024;
    }
    return unit == 1           ? fmt::format("{} bytes", bytes)
           : bytes % unit == 0 ? text.substr(0, point) + text.substr(point + 3)
                               : fmt::format("{} ({} bytes)", text, bytes);
}

std::string above_limit_text(uint64_t used, std::string_view device) {
    return fmt::format("{} of {} are in use and stay; requests fail until there is room",
                       observe::bytes_text(used), device);
}

std::string parse_limits(std::string_view text, std::vector<Limit> &ret_limits) {
    std::vector<Limit> limits;
    for (const std::string &row : observe::split(text, ';')) {
        const std::string problem = parse_limit(row, limits.emplace_back());
        if (!problem.empty()) {
            return problem;
        }
        const bool is_twice =
            std::any_of(limits.begin(), limits.end() - 1,
                        [&](const Limit &other) { return other.device == limits.back().device; });
        if (is_twice) {
            return expected("one size for each device", text);
        }
    }
    ret_limits = std::move(limits);
    return "";
}

std::string uuid_text(const uint8_t *uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; i++) {
        text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    }
    return text;
}

std::string apply_limits(const std::vector<Limit> &limits, std::vector<LimitedDevice> &devices) {
    std::vector<LimitedDevice> bounded = devices;
    for (const Limit &limit : limits) {
        unsigned named = 0;
        for (LimitedDevice &device : bounded) {
            if (!limit.device.empty() && is_of(limit, device)) {
                device.bound = limit.bytes;
                named++;
            }
        }
        if (!limit.device.empty() && named != 1) {
            return expected(named == 0 ? "the UUID of a device that the program sees"
                                       : "the UUID of one device",
                            limit.device);
        }
    }
    const auto other = std::find_if(limits.begin(), limits.end(),
                                    [](const Limit &limit) { return limit.device.empty(); });
    for (size_t i = 0; i < bounded.size(); i++) {
        LimitedDevice &device = bounded[i];
        device.bound = device.bound == 0 && other != limits.end() ? other->bytes : device.bound;
        if (device.bound > device.bytes) {
            return fmt::format("expected at most the {} that device {} ({}) has, found {}",
                               size_text(device.bytes), i, device.uuid, size_text(device.bound));
        }
    }
    devices = std::move(bounded);
    return "";
}

} // namespace emm::driver
