#include "outside.h"

#include "caller.h"
#include "server.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>
#include <unistd.h>

namespace emm::run {
namespace {

constexpr unsigned interval = 200; // microseconds between two looks

int64_t now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec;
}

// Whether the condition became true before `until`.
template <class IsSo> bool wait_for(int64_t until, IsSo is_so) {
    bool found = is_so();
    while (!found && now() < until) {
        usleep(interval);
        found = is_so();
    }
    return found;
}

int collect(emm_context *manager, void *all) {
    static_cast<std::vector<emm_context *> *>(all)->push_back(manager);
    return 0;
}

emm_stats stats_of(emm_context *manager) {
    auto stats = sized<emm_stats>();
    return emm_get_stats(manager, &stats) >= 0 ? stats : emm_stats();
}

// The part of a paused pool that stays.
std::string what_stays(emm_context *manager) {
    const uint64_t bytes = stats_of(manager).reserved_bytes;
    return bytes == 0 ? "" : fmt::format("{} bytes stay: exported, or cannot be returned", bytes);
}

std::string last_text() {
    return emm_last_error()->text;
}

std::string not_ended(int64_t timeout, const std::string &found) {
    return fmt::format(
        "its work on the device did not end within {:.1f} s ({}); nothing has changed",
        double(timeout) / 1e9, found);
}

// --- work on the device ------------------------------------------------------------------------

// Waits for the work of one context, by an event of all its streams. Gives the driver's answer:
// CUDA_ERROR_NOT_READY if work goes on at `until`. A context that has died has no work.
CUresult wait_for_work_of(CUcontext context, int64_t until) {
    const Driver &driver = server().driver;
    const Current current(driver, context);
    CUevent event = nullptr;
    if (current.result() != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    CUresult result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver.record_context_event(context, event);
    if (result == CUDA_SUCCESS) {
        wait_for(until, [&] {
            result = driver.cuEventQuery(event);
            return result != CUDA_ERROR_NOT_READY;
        });
    }
    driver.cuEventDestroy(event);
    return result;
}

// Names the work that has not ended; "": all has.
std::string wait_for_work(int64_t until) {
    for (const CUcontext context : server().contexts.all_cuda()) {
        const CUresult result = wait_for_work_of(context, until);
        if (result != CUDA_SUCCESS) {
            return result == CUDA_ERROR_NOT_READY
                       ? "still running"
                       : fmt::format("the driver reports error {}", int(result));
        }
    }
    return "";
}

constexpr const char *captures = "a capture is in progress; nothing has changed";

} // namespace

// While an Own lives, the calls of this thread are not held.
class Outside::Own {
public:
    explicit Own(const HoldCalls &hold) : hold_(hold), has_begun_(hold.begin_own()) {
        lives = true;
    }
    ~Own() {
        lives = false;
        if (has_begun_) {
            hold_.end_own();
        }
    }
    Own(const Own &) = delete;
    Own &operator=(const Own &) = delete;
    explicit operator bool() const { return has_begun_; }
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool lives = false;

private:
    const HoldCalls &hold_;
    const bool has_begun_;
};

bool Outside::is_own_thread() {
    return Own::lives;
}

// Holds the calls. A capture that began before ends first. "": calls are held, and the devices have
// no work.
std::string Outside::hold_calls(int64_t until) {
    const int64_t timeout = until - now();
    constexpr auto end = [] { server().outside.hold()->end(); };
    static const bool ends = std::atexit(end) == 0 && std::at_quick_exit(end) == 0;
    if (!ends) {
        return "no host memory";
    }
    if (!server().driver.record_context_event) {
        return "the driver cannot tell when the work of a context has ended (cuCtxRecordEvent, "
               "CUDA 12.5 and later)";
    }
    if (server().streams.any_capture()) {
        return captures;
    }
    is_plugins_call();
    hold_->spare(&is_plugins_call);
    is_held_ = hold_->close(timeout);
    if (!is_held_) {
        return not_ended(timeout, "a driver call has not returned, or the process is ending");
    }
    const bool captured = server().streams.any_capture(); // by a call that had begun
    const std::string found = captured ? "" : wait_for_work(until);
    return captured ? captures : found.empty() ? "" : not_ended(timeout, found);
}

// --- pools -------------------------------------------------------------------------------------

namespace {

// The answers list the memory of cuMemCreate under this name, as if it were a pool of each device.
constexpr const char *physical_name = "cuMemCreate";

bool means_physical(const monitor::Outside &outside) {
    return !*outside.pool || outside.pool == std::string_view(physical_name);
}

PhysicalMemory::Tell as_pool(const monitor::Outside &outside) {
    return [&outside](CUdevice device, uint64_t bytes, const std::string &stays) {
        outside.tell(outside.state, {device, 0, physical_name, bytes, stays.c_str()});
    };
}

} // namespace

// The pools of that name, or all. If no pool has the name, `ret_problem` lists the names.
std::vector<Outside::Pool> Outside::pools_named(const std::string &name, std::string &ret_problem) {
    std::set<std::string> names;
    std::vector<emm_context *> all;
    std::vector<Pool> pools;
    emm_foreach_context(&collect, &all);
    for (emm_context *manager : all) {
        auto info = sized<emm_context_info>();
        if (emm_context_get_info(manager, &info) >= 0) {
            names.insert(info.pool);
            pools.push_back({manager, info});
        }
    }
    std::erase_if(pools, [&](const Pool &pool) { return !name.empty() && name != pool.info.pool; });
    if (server().physical.any()) {
        names.insert(physical_name);
    }
    if (!name.empty() && names.count(name) == 0) {
        names.erase("");
        ret_problem = fmt::format("no pool has the name '{}': {}", name,
                                  names.empty() ? std::string("it has no named pools")
                                                : fmt::format("it has {}", fmt::join(names, ", ")));
    }
    return pools;
}

void Outside::stays(const Allocation &memory, const char *why) {
    const std::lock_guard lock(staying_mutex_);
    staying_.push_back({memory, why});
}

// The reason why the pool may not be paused; "": it may.
std::string Outside::reason_against_pause(const Pool &pool) {
    const std::lock_guard lock(staying_mutex_);
    std::erase_if(staying_, [](const Staying &each) {
        const Allocation now = server().allocations.find(each.memory.address);
        return now.freed || now.id != each.memory.id;
    });
    for (const Staying &each : staying_) {
        if (each.memory.manager() == pool.manager) {
            return fmt::format("{} bytes of {} cannot be paused: they are {}; nothing has changed",
                               each.memory.size,
                               *pool.info.pool ? pool.info.pool : "the context's own pool",
                               each.why);
        }
    }
    return "";
}

std::string Outside::pause_pools(const monitor::Outside &outside,
                                 std::vector<emm_context *> &ret_paused) {
    std::string problem;
    std::vector<Pool> pools = pools_named(outside.pool, problem);
    for (const Pool &pool : pools) {
        problem = problem.empty() ? reason_against_pause(pool) : problem;
    }
    if (!problem.empty()) {
        return problem;
    }
    // Named pools come first: the context's own pool would pause them too.
    std::stable_partition(pools.begin(), pools.end(),
                          [](const Pool &pool) { return *pool.info.pool != 0; });
    for (const Pool &pool : pools) {
        size_t released = 0;
        const emm_status status = emm_context_pause(pool.manager, outside.flags, &released);
        if (status < 0 && !leaves_to_driver(status)) {
            return last_text();
        }
        if (status == EMM_OK) {
            ret_paused.push_back(pool.manager);
            paused_.insert(pool.manager);
        }
        const std::string stays = status < 0 ? "" : what_stays(pool.manager);
        outside.tell(outside.state, {pool.info.device, pool.info.context_id, pool.info.pool,
                                     status == EMM_OK ? released : 0, stays.c_str()});
    }
    return "";
}

// Undoes a pause that has failed. The answer continues the sentence of the failure.
std::string Outside::undo(const std::vector<emm_context *> &paused, bool keeps, uint64_t lost) {
    std::string more;
    for (emm_context *manager : paused) {
        const uint64_t bytes = stats_of(manager).paused_bytes;
        lost += keeps ? 0 : bytes;
        if (emm_context_resume(manager, EMM_RESUME_UNDO) >= 0) {
            paused_.erase(manager);
        } else {
            more += fmt::format("; {} bytes stay asleep: {}", bytes, last_text());
        }
    }
    return lost == 0 ? more : fmt::format("; the content of {} bytes is lost{}", lost, more);
}

// All or nothing.
std::string Outside::pause_held(const monitor::Outside &outside) {
    std::vector<emm_context *> paused;
    std::string problem = pause_pools(outside, paused);
    const bool keeps = (outside.flags & EMM_PAUSE_KEEP) != 0;
    uint64_t lost = 0;
    if (problem.empty() && means_physical(outside)) {
        problem = server().physical.pause(keeps, as_pool(outside), lost);
    }
    return problem.empty() ? "" : problem + undo(paused, keeps, lost);
}

std::string Outside::pause(const monitor::Outside &outside) {
    const int64_t until = now() + outside.timeout;
    const std::string problem = is_held_ ? "" : hold_calls(until);
    if (problem.empty()) {
        outside.holds();
    }
    return problem.empty() ? pause_held(outside) : problem;
}

// If memory runs out, the parts resumed so far stay resumed, and the next call resumes the rest.
std::string Outside::resume(const monitor::Outside &outside) {
    std::string problem;
    const std::string wanted = outside.pool;
    pools_named(wanted, problem);
    for (auto each = paused_.begin(); each != paused_.end() && problem.empty();) {
        auto info = sized<emm_context_info>();
        emm_context_get_info(*each, &info);
        if (!wanted.empty() && wanted != (info.pool ? info.pool : "")) {
            ++each;
            continue;
        }
        const uint64_t before = stats_of(*each).reserved_bytes;
        const emm_status status = emm_context_resume(*each, EMM_RESUME_UNDO | outside.flags);
        if (status < 0 && !leaves_to_driver(status)) {
            problem = last_text();
            break;
        }
        // Bytes that were freed meanwhile do not come back.
        const uint64_t after = stats_of(*each).reserved_bytes;
        outside.tell(outside.state, {info.device, info.context_id, info.pool ? info.pool : "",
                                     after - std::min(after, before), ""});
        each = paused_.erase(each);
    }
    if (means_physical(outside) && problem.empty()) {
        problem = server().physical.resume(as_pool(outside));
    }
    return problem;
}

void Outside::release_if_awake() {
    if (is_held_ && paused_.empty() && !server().physical.sleeps()) {
        is_held_ = false;
        hold_->open();
    }
}

bool Outside::ask(monitor::Outside &outside) {
    const std::lock_guard lock(mutex_);
    const Own own(*hold_);
    bool is_done = false;
    const auto tell = [&](const char *problem) {
        std::snprintf(outside.problem, sizeof outside.problem, "%s", problem);
    };
    try {
        const std::string problem = !own               ? "no host memory"
                                    : outside.is_pause ? pause(outside)
                                                       : resume(outside);
        is_done = problem.empty();
        tell(problem.c_str());
        // After an exception, the parts that have been paused sleep until they are resumed.
    } catch (const std::bad_alloc &) {
        tell("no host memory");
    } catch (const std::exception &error) {
        tell(error.what());
    }
    release_if_awake();
    outside.is_held = is_held_;
    return is_done;
}

} // namespace emm::run

extern "C" __attribute__((visibility("default"))) bool
emm_run_outside(emm::monitor::Outside *outside) {
    return emm::run::server().outside.ask(*outside);
}
