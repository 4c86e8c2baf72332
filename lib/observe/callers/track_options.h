#pragma once

#include <cstdint>
#include <string_view>

namespace emm::observe {

// EMM_TRACK=module|stack[:sample=1/N]: how much is kept about each live allocation.
enum class TrackDepth : uint8_t { none, module, stack };

struct TrackOptions {
    TrackDepth depth = TrackDepth::none;
    uint32_t sample = 1; // one of so many allocations is tracked
};

constexpr uint32_t largest_sample = 1'000'000;

constexpr const char *track_options_expected =
    "module or stack, with :sample=1/N behind it or nothing (N up to 1000000)";

// False: the text is not valid, and nothing is tracked. "" means `none`.
bool parse_track_options(std::string_view text, TrackOptions &ret_options);

} // namespace emm::observe
