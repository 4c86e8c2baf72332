#pragma once

#include <string>
#include <string_view>
#include <vector>

// Values of JSON, as text. A document of nlohmann_json takes memory in its destructor, and so ends
// a process that has no host memory left.
namespace emm::observe {

// `text` in quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

// "null" for an empty text.
std::string json_quoted_or_null(std::string_view text);

// An array: `write` gives the JSON of each element.
template <class Elements, class Write>
std::string json_array(const Elements &elements, Write write) {
    std::string text = "[";
    for (const auto &element : elements) {
        text += text.size() == 1 ? "" : ",";
        text += write(element);
    }
    return text + "]";
}

// An array of texts.
std::string json_array(const std::vector<std::string> &texts);

} // namespace emm::observe
