#include "child.h"
#include "clock.h"
#include "commands.h"
#include "driver.h"
#include "problem.h"
#include "replay/heartbeat.h"
#include "replay/pace.h"
#include "replay/player.h"
#include "replay/session.h"
#include "replay/watch.h"
#include "statistics.h"
#include "trace/reader.h"
#include "workload/workload.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

// One replay, from the first event to the bytes that the driver still holds at the end.
class Replay {
public:
    Replay(const Trace &trace, const Json &job, Heartbeat &heartbeat)
        : trace_(trace), free_order_(job.at("free_order").get<bool>()),
          touch_(job.at("touch").get<bool>()), warm_(job.at("warm").get<bool>()),
          pace_(job.value("pace", 0.0)), heartbeat_(heartbeat), session_(trace) {
        if (job.contains("watch")) {
            watch_ = std::make_unique<Watch>(job.at("watch"), trace, session_);
        }
    }

    Json run() {
        if (warm_) {
            play_whole();
            times_.clear();
            for (uint32_t i = 0; i < trace_.blocks; i++) {
                session_.block(i).renew();
            }
        }
        play_whole();
        read_reserved();
        session_.close();
        races_ = races_seen();
        return result();
    }

private:
    // With all blocks freed in the end.
    void play_whole() {
        make_players();
        play();
        seen_ = watch_ ? watch_->finish() : Json();
        const uint64_t at_end = total(session_.driver_calls());
        second_half_ = at_end - std::min(at_end, at_middle_);
        clean_up();
    }

    // The meter does not see spilled and managed memory, nor memory that a plugin's other library
    // takes.
    void read_reserved() {
        auto plugin = sized<emm_plugin_info>();
        require(emm_get_plugin(&plugin), "run");
        tells_reserved_ = (plugin.capabilities & EMM_PLUGIN_OPAQUE) == 0;
        peak_reserved_ = session_.stats().peak_reserved_bytes;
    }

    Json peak_reserved(const emm_driver_usage &usage) const {
        return tells_reserved_ ? Json(std::max(usage.peak_device_bytes, peak_reserved_)) : Json();
    }

    void make_players() {
        std::vector<size_t> counts(trace_.threads);
        for (const Event &event : trace_.events) {
            counts[event.thread]++;
        }
        for (const size_t count : counts) {
            players_.push_back(std::make_unique<Player>(session_, touch_, count));
        }
    }

    void play() {
        Hooks hooks;
        hooks.middle = [this] { at_middle_ = total(session_.driver_calls()); };
        hooks.ended = [this](uint16_t thread) {
            heartbeat_.count(thread);
            if (watch_) {
                watch_->ended();
            }
        };
        if (pace_ > 0) {
            hooks.before = [work = TimedWork(), pace = RecordedPace(pace_),
                            this](const Event &event) mutable {
                const bool has_stream = event.op == Op::alloc || event.op == Op::free;
                const Interval interval = pace.next(event.gap, has_stream);
                pause(interval.pause);
                if (interval.work > 0) {
                    work.put(session_.stream(event.stream), interval.work);
                }
            };
        }
        const double began = seconds_now();
        (free_order_ ? play_freely : play_strictly)(trace_, players_, session_, hooks);
        seconds_ = seconds_now() - began;
    }

    void clean_up() {
        Player &last = *players_.front();
        for (uint32_t i = 0; i < trace_.open_sections; i++) {
            last.leave_section();
        }
        for (uint32_t i = 0; i < trace_.blocks; i++) {
            last.release_left(session_.block(i));
            heartbeat_.count(0);
        }
        for (auto &player : players_) {
            player->finish();
        }
        session_.synchronize();
        for (auto &player : players_) {
            mismatches_ += player->mismatches();
            failed_ += player->failed();
            note_failure(*player);
        }
        collect_times();
        players_.clear();
    }

    // Keeps the failure that came first in the trace.
    void note_failure(const Player &player) {
        if (!player.first_failure().empty() &&
            (failure_.empty() || player.first_failure_number() < failure_number_)) {
            failure_ = player.first_failure();
            failure_number_ = player.first_failure_number();
        }
    }

    void collect_times() {
        for (const auto &player : players_) {
            times_.insert(times_.end(), player->ticks().begin(), player->ticks().end());
        }
    }

    Json result() {
        auto usage = sized<emm_driver_usage>();
        require(emm_get_driver_usage(&usage), "run");
        const Summary summary = summarize(times_);
        const double scale = nanoseconds_per_tick();
        Json result = {{"events", trace_.calls()},
                       {"failed", failed_},
                       {"peak_live_bytes", trace_.peak_live_bytes},
                       {"peak_reserved_bytes", peak_reserved(usage)},
                       {"leaked", usage.device_bytes + usage.host_bytes},
                       {"early_handovers", mismatches_ + races_.count},
                       {"driver_calls", session_.driver_calls()},
                       {"driver_calls_second_half", second_half_},
                       {"ns_per_event",
                        {{"mean", rounded(summary.mean * scale)},
                         {"p50", rounded(summary.p50 * scale)},
                         {"p99", rounded(summary.p99 * scale)},
                         {"p999", rounded(summary.p999 * scale)}}}};
        if (pace_ > 0) {
            const double inside = summary.mean * scale * static_cast<double>(times_.size()) * 1e-9;
            result["share_of_time"] = std::round(inside / seconds_ * 1e6) * 1e-6;
        }
        return result;
    }

public:
    // The results that the job asked to watch.
    const Json &seen() const { return seen_; }

    // Texts beside the figures: the cause of a failure, and memory that was handed over too early.
    Json notes() const {
        Json notes = Json::array();
        if (!failure_.empty()) {
            notes.push_back("the first call that failed: " + failure_);
        }
        if (mismatches_ != 0) {
            notes.push_back(std::to_string(mismatches_) +
                            " blocks held other bytes than were written to them");
        }
        if (!races_.latest.empty()) {
            notes.push_back("the latest early hand-over: " + races_.latest);
        }
        return notes;
    }

private:
    const Trace &trace_;
    const bool free_order_, touch_, warm_;
    const double pace_;
    Heartbeat &heartbeat_;
    Session session_;
    std::unique_ptr<Watch> watch_;
    Json seen_;
    std::vector<std::unique_ptr<Player>> players_;
    std::vector<uint64_t> times_;
    double seconds_ = 0; // from the first event to the end of the last one
    uint64_t at_middle_ = 0, second_half_ = 0, mismatches_ = 0, failed_ = 0;
    uint64_t peak_reserved_ = 0; // as the plugin tells
    bool tells_reserved_ = true;
    std::string failure_;
    size_t failure_number_ = 0;
    Races races_;
};

Trace trace_of(const Json &job) {
    const auto workload = job.at("workload").get<std::string>();
    return workload.empty() ? read_trace(job.at("trace").get<std::string>())
                            : generate(workload, job.at("seed").get<uint64_t>());
}

} // namespace

void run_replay_job(const Json &job, Parent &parent) {
    Heartbeat heartbeat(parent);
    const Trace trace = trace_of(job);
    auto plugin = sized<emm_plugin_info>();
    require(emm_get_plugin(&plugin), "resolve");
    nanoseconds_per_tick();
    heartbeat.expect(trace.events.size() * (job.at("warm").get<bool>() ? 2 : 1));
    Replay replay(trace, job, heartbeat);
    const Json result = replay.run();
    parent.send({{"driver", describe_driver()},
                 {"spec", plugin.spec ? plugin.spec : ""},
                 {"notes", replay.notes()},
                 {"seen", replay.seen()},
                 {"result", result}});
}

} // namespace emm::tool
