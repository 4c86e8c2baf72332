#include "observe/json.h"

#include <nlohmann/json.hpp>

namespace emm::observe {

std::string json_quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_quoted_or_null(std::string_view text) {
    return text.empty() ? "null" : json_quoted(text);
}

std::string json_array(const std::vector<std::string> &texts) {
    return json_array(texts, json_quoted);
}

} // namespace emm::observe
