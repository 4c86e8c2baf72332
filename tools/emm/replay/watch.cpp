#include "replay/watch.h"

#include "observe/read_write.h"
#include "problem.h"
#include "replay/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace emm::tool {
namespace {

constexpr size_t most_peaks = 2000; // further samples for a growing reserve

Failure watch_not_written(const std::string &path) {
    return Failure({.stage = "run",
                    .message = fmt::format("cannot write {}: {}", path, std::strerror(errno)),
                    .path = path});
}

bool write_numbers(int descriptor, const std::vector<uint64_t> &numbers) {
    return observe::write_all(descriptor, {reinterpret_cast<const char *>(numbers.data()),
                                           numbers.size() * sizeof(uint64_t)});
}

uint64_t steps_of(const Trace &trace) {
    return static_cast<uint64_t>(
        std::count_if(trace.events.begin(), trace.events.end(), [](const Event &event) {
            return event.op == Op::alloc || event.op == Op::free;
        }));
}

uint64_t device_bytes() {
    auto usage = sized<emm_driver_usage>();
    require(emm_get_driver_usage(&usage), "run");
    return usage.device_bytes;
}

} // namespace

Watch::Watch(const Json &job, const Trace &trace, Session &session)
    : trace_(trace), session_(session) {
    const auto path = job.at("file").get<std::string>();
    const uint64_t steps = steps_of(trace);
    descriptor_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) {
        throw watch_not_written(path);
    }
    every_ = steps / job.at("samples").get<uint64_t>() + 1;
    reserved_.reserve(steps);
    addresses_.reserve(trace.blocks);
    for (const char *const key : {"step", "live", "cached", "pending", "reserved"}) {
        samples_[key] = Json::array();
    }
    samples_["calls"] = Json::object();
}

Watch::~Watch() {
    close(descriptor_);
}

void Watch::ended() {
    const Event &event = trace_.events[event_++];
    if (event.op != Op::alloc && event.op != Op::free) {
        return;
    }
    if (event.op == Op::alloc) {
        addresses_.push_back(session_.block(event.block).address());
    }
    reserved_.push_back(device_bytes());
    const bool is_peak = reserved_.back() > highest_ && peaks_ < most_peaks;
    peaks_ += is_peak;
    highest_ = std::max(highest_, reserved_.back());
    if (is_peak || reserved_.size() % every_ == 0) {
        sample();
    }
}

void Watch::sample() {
    const emm_stats stats = session_.stats();
    sampled_at_ = reserved_.size() - 1;
    Json &calls = samples_["calls"];
    const size_t before = samples_["step"].size();
    for (const auto &[name, count] : session_.driver_calls()) {
        Json &counts = calls[name];
        if (counts.is_null()) {
            counts = std::vector<uint64_t>(before); // was not called until now
        }
        counts.push_back(count);
    }
    samples_["step"].push_back(sampled_at_);
    samples_["live"].push_back(stats.live_bytes);
    samples_["cached"].push_back(stats.cached_bytes);
    samples_["pending"].push_back(stats.pending_bytes);
    samples_["reserved"].push_back(reserved_.back());
}

Json Watch::finish() {
    if (!reserved_.empty() && sampled_at_ != reserved_.size() - 1) {
        sample();
    }
    if (!write_numbers(descriptor_, reserved_) || !write_numbers(descriptor_, addresses_)) {
        throw watch_not_written("what the replay has seen");
    }
    return samples_;
}

} // namespace emm::tool
