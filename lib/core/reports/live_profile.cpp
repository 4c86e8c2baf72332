#include "core/reports/live_profile.h"

#include "core/tracking/tracking.h"
#include "observe/callers/walk.h"
#include "observe/events/module.h"

#include <algorithm>
#include <compare>
#include <fmt/format.h>
#include <map>
#include <utility>

namespace emm::core {
namespace {

// Texts live as long as the process, once each.
struct ProfilePlace {
    const char *file, *function; // function: of Python, else NULL
    uint64_t offset;             // of Python the line
    auto operator<=>(const ProfilePlace &) const = default;
};

struct ProfileHolder {
    int32_t device;
    uint32_t memory;
    std::vector<ProfilePlace> places;
    const observe::Tag *tag;
    auto operator<=>(const ProfileHolder &) const = default;
};

std::vector<ProfilePlace> places_of(const TrackedAllocation &record) {
    const std::vector<emm_frame> none, &frames = record.stack ? record.stack->frames : none;
    std::vector<ProfilePlace> places;
    if (frames.empty() || frames.front().function) { // no compiled frame is kept
        places.push_back({observe::modules().path(record.module).c_str(), nullptr, record.offset});
    }
    for (const emm_frame &frame : frames) {
        places.push_back({frame.module ? frame.module : "", frame.function,
                          frame.function ? frame.line : frame.offset});
    }
    return places;
}

// Numbers each place, and writes its name at the first use.
class ProfileFrames {
public:
    explicit ProfileFrames(std::vector<LiveProfile::Frame> &frames) : frames_(frames) {}

    uint32_t number_of(const ProfilePlace &place) {
        const auto [found, is_new] = numbers_.try_emplace(place, frames_.size());
        if (is_new) {
            frames_.push_back(frame_of(place));
        }
        return found->second;
    }

private:
    LiveProfile::Frame frame_of(const ProfilePlace &place) {
        if (place.function) {
            return {place.file, place.function, static_cast<uint32_t>(place.offset)};
        }
        const std::string file = place.file;
        const bool is_read = !file.empty() && read_++ < most_symbols;
        const std::string symbol = is_read ? observe::symbol_at(file, place.offset) : "";
        const std::string base = file.substr(file.rfind('/') + 1);
        return {file,
                symbol.empty() ? fmt::format("{}+{:#x}", base, place.offset)
                               : symbol.substr(0, symbol.rfind("+0x")),
                0};
    }

    std::vector<LiveProfile::Frame> &frames_;
    std::map<ProfilePlace, uint32_t> numbers_;
    size_t read_ = 0;
};

} // namespace

LiveProfile live_profile() {
    LiveProfile profile;
    profile.is_tracked = is_tracking();
    if (!profile.is_tracked) {
        return profile;
    }
    profile.sample = open_tracking().sample;
    profile.lost = lost_records();
    std::map<ProfileHolder, std::pair<uint64_t, uint64_t>> sums; // bytes and count
    for (const TrackedAllocation &record : tracked_allocations(nullptr)) {
        auto &[bytes, count] =
            sums[{record.context->device, memory_of(static_cast<observe::EventType>(record.type)),
                  places_of(record), record.stack ? record.stack->tag : nullptr}];
        bytes += record.size * profile.sample;
        count += profile.sample;
    }
    std::vector<std::pair<ProfileHolder, std::pair<uint64_t, uint64_t>>> sorted(sums.begin(),
                                                                                sums.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto &one, const auto &other) {
        return one.second.first > other.second.first;
    });
    ProfileFrames frames(profile.frames);
    for (const auto &[holder, sum] : sorted) {
        LiveProfile::Caller caller = {holder.device,
                                      holder.memory,
                                      sum.first,
                                      sum.second,
                                      {},
                                      holder.tag ? holder.tag->path : ""};
        for (const ProfilePlace &place : holder.places) {
            caller.frames.push_back(frames.number_of(place));
        }
        profile.callers.push_back(std::move(caller));
    }
    return profile;
}

} // namespace emm::core
