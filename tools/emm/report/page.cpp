#include "report/page.h"

#include "report/page_text.h"

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

} // namespace emm::tool
