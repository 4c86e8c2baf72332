#include "observe/callers/track_options.h"

#include <algorithm>
#include <charconv>

namespace emm::observe {
namespace {

bool take_sample(std::string_view word, uint32_t &ret_sample) {
    constexpr std::string_view key = "sample=1/";
    const char *const end = word.data() + word.size();
    const auto [stopped, error] =
        std::from_chars(word.data() + std::min(key.size(), word.size()), end, ret_sample);
    return word.starts_with(key) && error == std::errc() && stopped == end && ret_sample >= 1 &&
           ret_sample <= largest_sample;
}

} // namespace

bool parse_track_options(std::string_view text, TrackOptions &ret_options) {
    const size_t colon = text.find(':');
    const std::string_view depth = text.substr(0, colon);
    TrackOptions parsed;
    parsed.depth = depth == "module"  ? TrackDepth::module
                   : depth == "stack" ? TrackDepth::stack
                                      : TrackDepth::none;
    const bool is_expected =
        parsed.depth != TrackDepth::none &&
        (colon == text.npos || take_sample(text.substr(colon + 1), parsed.sample));
    ret_options = is_expected ? parsed : TrackOptions();
    return is_expected || text.empty();
}

} // namespace emm::observe
