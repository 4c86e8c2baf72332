#include "observe/callers/track_options.h"

#include <charconv>

namespace emm::observe {
namespace {

constexpr std::string_view sample_key = "sample=1/";

bool take_depth(std::string_view word, TrackDepth &ret_depth) {
    if (word != "module" && word != "stack") {
        return false;
    }
    ret_depth = word == "module" ? TrackDepth::module : TrackDepth::stack;
    return true;
}

bool take_sample(std::string_view word, uint32_t &ret_sample) {
    if (word.substr(0, sample_key.size()) != sample_key) {
        return false;
    }
    word.remove_prefix(sample_key.size());
    const auto [stopped, error] =
        std::from_chars(word.data(), word.data() + word.size(), ret_sample);
    return error == std::errc() && stopped == word.data() + word.size() && ret_sample >= 1 &&
           ret_sample <= largest_sample;
}

} // namespace

bool parse_track_options(std::string_view text, TrackOptions &ret_options) {
    ret_options = {};
    if (text.empty()) {
        return true;
    }
    const size_t colon = text.find(':');
    TrackOptions parsed;
    if (take_depth(text.substr(0, colon), parsed.depth) &&
        (colon == text.npos || take_sample(text.substr(colon + 1), parsed.sample))) {
        ret_options = parsed;
        return true;
    }
    return false;
}

} // namespace emm::observe
