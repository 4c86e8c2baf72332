#include "json.h"

#include <nlohmann/json.hpp>

namespace emm::tool {

std::string dump(const Json &json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

} // namespace emm::tool
