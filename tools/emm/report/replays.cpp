#include "report/replays.h"

#include "child.h"
#include "observe/read_write.h"
#include "report/address_map.h"
#include "report/histograms.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

namespace emm::tool {
namespace {

constexpr uint64_t most_samples = 1000;

Failure replay_failure(std::string message) {
    return Failure({.code = EMM_E_PLUGIN_FAILED, .stage = "run", .message = std::move(message)});
}

// A file in memory that another process writes.
class SharedFile {
public:
    SharedFile() : descriptor_(memfd_create("emm-report", MFD_CLOEXEC)) {
        if (descriptor_ < 0) {
            throw replay_failure(
                fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
        }
    }
    ~SharedFile() { close(descriptor_); }
    SharedFile(const SharedFile &) = delete;
    SharedFile &operator=(const SharedFile &) = delete;

    std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); }

    uint64_t size() const {
        const off_t end = lseek(descriptor_, 0, SEEK_END);
        return end < 0 ? 0 : static_cast<uint64_t>(end);
    }

    std::vector<uint64_t> numbers(size_t first, size_t count) const {
        std::vector<uint64_t> numbers(count);
        const size_t bytes = count * sizeof(uint64_t);
        if (observe::read_at(descriptor_, first * sizeof(uint64_t), numbers.data(), bytes) !=
            bytes) {
            throw replay_failure("what the replay has seen cannot be read");
        }
        return numbers;
    }

private:
    const int descriptor_;
};

Json watched_job_of(const Input &input, const SharedFile &file) {
    return {{"job", "replay"},     {"trace", input.path()},
            {"workload", ""},      {"seed", 1},
            {"free_order", false}, {"touch", false},
            {"warm", false},       {"watch", {{"file", file.path()}, {"samples", most_samples}}}};
}

// A recording's device may have been larger than the simulated driver's default.
Changes changes_for_replay(const std::string &plugin) {
    Changes changes = {{"EMM_DRIVER_METER", "1"},
                       {"EMM_PLUGIN", plugin},
                       {"EMM_EVENT_LOG", std::nullopt},
                       {"EMM_SIM", simulator_settings({"memory=256GiB"})}};
    if (!std::getenv("EMM_DRIVER")) {
        changes.emplace_back("EMM_DRIVER", "sim");
    }
    return changes;
}

Replayed replay_on(const ReportOptions &options, const Input &input, const std::string &plugin,
                   const History &history, const std::function<void(double)> &report) {
    const SharedFile file;
    Child child(plugin, watched_job_of(input, file), changes_for_replay(plugin), {options.limit});
    const Json answer = child.receive(report);
    const size_t steps = history.steps.size(), blocks = history.blocks.size();
    if (file.size() != (steps + blocks) * sizeof(uint64_t)) {
        throw replay_failure(
            fmt::format("{}: expected {} events from its replay, found others", plugin, steps));
    }
    Replayed replayed;
    replayed.plugin = plugin;
    replayed.reserved = file.numbers(0, steps);
    replayed.addresses = file.numbers(steps, blocks);
    replayed.driver = answer.at("driver");
    replayed.result = answer.at("result");
    replayed.samples = answer.at("seen");
    replayed.notes = answer.at("notes");
    return replayed;
}

} // namespace

Replayed recorded_reserve(const History &history, const Recorded::Reserve &reserve) {
    Replayed replayed;
    replayed.plugin = "PyTorch's allocator";
    replayed.is_recorded = true;
    replayed.reserved = reserve.reserved;
    replayed.addresses = addresses_of(history);
    replayed.driver = {{"simulated", false}};
    replayed.result = {
        {"peak_reserved_bytes",
         *std::max_element(reserve.reserved.begin(), reserve.reserved.end())},
        {"failed", 0},
        {"leaked", 0},
        {"driver_calls",
         {{"segments taken", reserve.taken}, {"segments given back", reserve.given_back}}},
        {"ns_per_event", {{"mean", 0}}}};
    replayed.notes = Json::array();
    Json &samples = replayed.samples;
    samples = {{"step", Json::array()},   {"live", Json::array()},     {"pending", Json::array()},
               {"cached", Json::array()}, {"reserved", Json::array()}, {"calls", Json::object()}};
    const uint32_t most =
        static_cast<uint32_t>(std::max_element(reserve.reserved.begin(), reserve.reserved.end()) -
                              reserve.reserved.begin());
    const std::vector<uint32_t> moments =
        moments_of(history, most_samples, {most, peak_of(history).step});
    uint64_t live = 0;
    size_t next = 0;
    for (uint32_t step = 0; step < history.steps.size(); step++) {
        const uint64_t size = history.block_of(step).size;
        live = history.is_free(step) ? live - size : live + size;
        if (next < moments.size() && moments[next] == step) {
            next++;
            const uint64_t reserved = reserve.reserved[step], pending = reserve.pending[step];
            samples["step"].push_back(step);
            samples["live"].push_back(live);
            samples["pending"].push_back(pending);
            samples["cached"].push_back(reserved - std::min(reserved, live + pending));
            samples["reserved"].push_back(reserved);
        }
    }
    return replayed;
}

std::vector<Replayed> replay_all(const ReportOptions &options, const Input &input,
                                 const History &history,
                                 const std::function<void(const std::string &, double)> &report) {
    std::vector<Replayed> all;
    std::vector<std::string> plugins = options.compare;
    if (!options.plugin.empty()) {
        plugins.push_back(options.plugin);
    }
    for (const std::string &plugin : plugins) {
        try {
            all.push_back(replay_on(options, input, plugin, history,
                                    [&](double share) { report(plugin, share); }));
        } catch (const Failure &failed) {
            Replayed &without = all.emplace_back();
            without.plugin = plugin;
            without.problem = failed.problem();
        }
    }
    const bool none = std::all_of(all.begin(), all.end(), [](const Replayed &replayed) {
        return replayed.problem.has_value();
    });
    if (!all.empty() && none) {
        throw Failure(*all.front().problem);
    }
    return all;
}

} // namespace emm::tool
