#include "exchange/exports.h"
#include "exchange/profile.h"
#include "observe/text.h"
#include "problem.h"
#include "top/inquiry.h"
#include "top/process.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace emm::tool {
namespace {

constexpr std::array<const char *, 4> memory_labels = {"device", "pinned", "registered", "managed"};

// Visits changes one block at a time, in the same order in each visit.
class StepVisitor : public TimelineVisitor {
public:
    void allocated(const LiveBlock &block, const Moment &moment) final {
        changed(block, moment, false);
    }
    void freed(const LiveBlock &block, uint64_t, const Moment &moment) final {
        changed(block, moment, true);
    }
    void failed(const LogCall &, const Moment &) final {}

protected:
    virtual void step(const LiveBlock &block, bool is_gone) = 0;
    uint64_t steps() const { return steps_; }

public:
    uint64_t last_time() const { return last_time_; }

private:
    void changed(const LiveBlock &block, const Moment &moment, bool is_gone) {
        steps_++;
        last_time_ = std::max(last_time_, moment.time);
        step(block, is_gone);
    }

    uint64_t steps_ = 0, last_time_ = 0;
};

// Finds the step with the most live device memory, for each device.
class PeakFinder : public StepVisitor {
public:
    std::map<uint64_t, uint64_t> peaks() const {
        std::map<uint64_t, uint64_t> steps;
        for (const auto &[device, found] : devices_) {
            steps[device] = found.step;
        }
        return steps;
    }

private:
    struct Device {
        uint64_t live = 0, peak = 0, step = 0;
    };

    void step(const LiveBlock &block, bool is_gone) override {
        if (block.memory != Memory::device) {
            return;
        }
        Device &its = devices_[block.device];
        its.live += is_gone ? uint64_t(0) - block.size : block.size;
        if (its.live > its.peak) {
            its.peak = its.live;
            its.step = steps();
        }
    }

    std::map<uint64_t, Device> devices_;
};

struct Sum {
    uint64_t count = 0, bytes = 0;

    void add(uint64_t size) {
        count++;
        bytes += size;
    }
    void subtract(uint64_t size) {
        count--;
        bytes -= size;
    }
};

class Summer : public StepVisitor {
public:
    explicit Summer(std::map<uint64_t, uint64_t> peaks) : peaks_(std::move(peaks)) {}

    ProfileTotals write(const CallSites &sites, Profile &profile) const {
        ProfileTotals totals;
        for (const auto &[holder, sums] : holders_) {
            const auto &[device, site, memory] = holder;
            const CallSite parts = parts_of(sites.text(site));
            profile.add(frames_of(parts), device, memory_labels[static_cast<size_t>(memory)],
                        parts.tag,
                        {sums.all.count, sums.all.bytes, sums.in_the_end.count,
                         sums.in_the_end.bytes, sums.at_peak.count, sums.at_peak.bytes});
            totals.samples++;
            totals.allocations += sums.all.count;
            totals.live += sums.in_the_end.count;
        }
        return totals;
    }

private:
    struct Sums {
        Sum all, in_the_end, at_peak;
    };

    void step(const LiveBlock &block, bool is_gone) override {
        Sums &sums = holders_[{block.device, block.site, block.memory}];
        if (is_gone) {
            sums.in_the_end.subtract(block.size);
        } else {
            sums.all.add(block.size);
            sums.in_the_end.add(block.size);
        }
        const auto peak = peaks_.find(block.device);
        if (peak != peaks_.end() && peak->second == steps()) {
            keep_peak(block.device);
        }
    }

    void keep_peak(uint64_t device) {
        for (auto each = holders_.lower_bound({device, 0, Memory::device});
             each != holders_.end() && std::get<0>(each->first) == device; ++each) {
            each->second.at_peak = each->second.in_the_end;
        }
    }

    const std::map<uint64_t, uint64_t> peaks_; // the step, by device
    std::map<std::tuple<uint64_t, uint32_t, Memory>, Sums> holders_;
};

} // namespace

ProfileTotals export_profile(Timeline &timeline, const CallSites &sites, Output &output) {
    PeakFinder finder;
    timeline.visit(finder);
    Summer summer(finder.peaks());
    timeline.visit(summer);
    Profile profile({{"alloc_objects", "count"},
                     {"alloc_space", "bytes"},
                     {"inuse_objects", "count"},
                     {"inuse_space", "bytes"},
                     {"peak_objects", "count"},
                     {"peak_space", "bytes"}});
    profile.comment("emm: alloc is all that was allocated, inuse what is live in the end, peak "
                    "what was live when each device had the most");
    const ProfileTotals totals = summer.write(sites, profile);
    output.write(profile.file(summer.last_time()));
    return totals;
}

namespace {

top::LiveProfile ask_for_profile(int64_t pid) {
    const top::Process process =
        top::Inquiry().ask(pid, monitor::RequestKind::profile, "export: --pid");
    const auto failure = [pid](const std::string &message) {
        return Failure(
            {.stage = "export", .message = fmt::format("export: process {}: {}", pid, message)});
    };
    if (!process.profile) {
        throw failure(process.problem.empty() ? "it sent no profile in time, or its emm is too old"
                                              : process.problem);
    }
    if (!process.profile->is_tracked) {
        throw failure("it does not track its allocations: it was started without EMM_TRACK or emm "
                      "run --track");
    }
    return *process.profile;
}

} // namespace

ProfileTotals export_live_profile(int64_t pid, Output &output) {
    const top::LiveProfile live = ask_for_profile(pid);
    ProfileTotals totals;
    Profile profile({{"inuse_objects", "count"}, {"inuse_space", "bytes"}});
    for (const top::LiveProfile::Caller &caller : live.callers) {
        std::vector<ProfileFrame> frames;
        for (const size_t place : caller.frames) {
            const top::LiveProfile::Frame &frame = live.frames[place];
            frames.push_back({frame.file, frame.function, frame.line, frame.line != 0});
        }
        const uint64_t memory = caller.memory - EMM_EVENT_DEVICE;
        profile.add(frames, caller.device,
                    memory < memory_labels.size() ? memory_labels[memory] : "unknown", caller.tag,
                    {caller.count, caller.bytes});
        totals.samples++;
        totals.live += caller.count;
    }
    if (live.other_count != 0) {
        profile.add({{"", "(callers that did not fit into the answer)"}}, 0, "any", "",
                    {live.other_count, live.other_bytes});
        totals.live += live.other_count;
    }
    if (live.sample != 1) {
        profile.comment(fmt::format("estimated from one allocation in {}", live.sample));
    }
    if (live.lost != 0) {
        profile.comment("no records of " + observe::counted(live.lost, "allocation"));
    }
    output.write(profile.file(0));
    return totals;
}

} // namespace emm::tool
