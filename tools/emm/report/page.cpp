#include "report/page.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace emm::tool {

std::string script_json(const Json &json) {
    const std::string plain = json.dump(-1, ' ', true, Json::error_handler_t::replace);
    std::string safe;
    safe.reserve(plain.size());
    for (const char character : plain) { // < > & are in texts alone
        switch (character) {
        case '<':
            safe += "\\u003c";
            break;
        case '>':
            safe += "\\u003e";
            break;
        case '&':
            safe += "\\u0026";
            break;
        default:
            safe += character;
        }
    }
    return safe;
}

void write_page(Output &output, const Json &document) {
    output.write(page_before_data());
    output.write(script_json(document));
    output.write(page_behind_data());
}

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
