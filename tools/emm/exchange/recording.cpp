#include "exchange/recording.h"

#include "trace/builder.h"

#include <algorithm>

namespace emm::tool {
namespace {

std::string listed(const std::vector<uint64_t> &devices) {
    constexpr size_t most = 16;
    std::string text;
    for (size_t i = 0; i < std::min(devices.size(), most); i++) {
        text += (i == 0 ? "" : ", ") + std::to_string(devices[i]);
    }
    return text + (devices.size() > most ? ", ..." : "");
}

} // namespace

uint64_t choose_device(const std::vector<uint64_t> &devices, std::optional<uint64_t> chosen) {
    if (devices.empty()) {
        throw Malformed("allocations of device memory", "none");
    }
    if (!chosen && devices.size() > 1) {
        throw Malformed("--device with one of the devices " + listed(devices), "none");
    }
    if (chosen && std::find(devices.begin(), devices.end(), *chosen) == devices.end()) {
        throw Malformed("--device with one of the devices " + listed(devices),
                        std::to_string(*chosen));
    }
    return chosen.value_or(devices.front());
}

} // namespace emm::tool
