#include "json.h"

#include "observe/text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace emm::tool {
namespace {

bool has_plain_lines(std::string_view text) {
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        if (!observe::is_plain(text.substr(begin, end - begin))) {
            return false;
        }
        begin = end + 1;
    }
    return true;
}

} // namespace

Json text_or_null(const std::string &text) {
    return text.empty() ? Json() : Json(text);
}

std::string dump(const Json &json, int indent) {
    constexpr auto replace = Json::error_handler_t::replace;
    const std::string text = json.dump(indent, ' ', false, replace);
    return has_plain_lines(text) ? text : json.dump(indent, ' ', true, replace);
}

} // namespace emm::tool
