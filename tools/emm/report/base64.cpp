#include "report/base64.h"

#include <algorithm>

namespace emm::tool {

std::string in_base64(const std::vector<uint8_t> &bytes) {
    constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t at = 0; at < bytes.size(); at += 3) {
        const size_t count = std::min<size_t>(3, bytes.size() - at);
        uint32_t group = 0;
        for (size_t i = 0; i < 3; i++) {
            group = group << 8 | (i < count ? bytes[at + i] : 0);
        }
        for (size_t i = 0; i < 4; i++) {
            text += i <= count ? digits[group >> (18 - 6 * i) & 63] : '=';
        }
    }
    return text;
}

} // namespace emm::tool
