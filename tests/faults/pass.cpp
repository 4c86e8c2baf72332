#include "pass.h"

#include <memory>
#include <optional>

namespace faults {
namespace {

using Complaints = std::vector<std::string>;

void expect(bool kept, Complaints &complaints, const std::string &otherwise) {
    if (!kept) {
        complaints.push_back(otherwise);
    }
}

void take_complaints(Run &run, const std::string &when, Complaints &complaints) {
    for (const std::string &complaint : run.complaints) {
        complaints.push_back(when + complaint);
    }
    run.complaints.clear();
}

// The sentence for a failure names the call that failed, and its code suits that call.
void judge_status(const Run &run, const Plan &plan, const Outcome &outcome,
                  Complaints &complaints) {
    if (!run.has_failed()) {
        return;
    }
    expect(outcome.failed > 0, complaints, "nothing was made to fail, and " + run.failed_at());
    if (plan.kind == Kind::driver) {
        return;
    }
    const bool lacks_memory = run.status() == EMM_E_OUT_OF_HOST_MEMORY;
    if (plan.kind == Kind::system || plan.kind == Kind::sandbox) {
        const bool is_told =
            lacks_memory || tells_reason(run.failed_at()) || outcome.without_record;
        const bool blames = run.status() == EMM_E_PLUGIN_UNTRUSTED; // another user
        return expect(is_told && !blames, complaints,
                      "expected the system's reason: " + run.failed_at());
    }
    const bool in_libc = run.status() == EMM_E_PLUGIN_UNLOADABLE || tells_reason(run.failed_at());
    expect(lacks_memory || in_libc, complaints,
           "expected EMM_E_OUT_OF_HOST_MEMORY (-3), or what the C library says: " +
               run.failed_at());
}

// emm's counters agree with the memory that the driver has handed out since `before`.
void judge_counters(emm_context *context, const Holdings &before, bool keeps_memory,
                    bool counts_all, Complaints &complaints) {
    // The failed free of a handle is tried again when the queue is emptied.
    must(emm_trim(context, SIZE_MAX, nullptr) == EMM_OK, "the end of what is pending");
    const Holdings now = holdings(); // there, managed memory is the host's
    const uint64_t taken =
        now.device_bytes + now.host_bytes - before.device_bytes - before.host_bytes;
    auto stats = sized<emm_stats>();
    if (emm_get_stats(context, &stats) < EMM_OK) {
        complaints.push_back(std::string("no statistics afterwards: ") + emm_last_error()->text);
        return;
    }
    expect(stats.live_bytes == 0 && stats.live_count == 0, complaints,
           std::to_string(stats.live_bytes) + " bytes in " + std::to_string(stats.live_count) +
               " blocks still count as live");
    expect(stats.host_live_bytes == 0, complaints,
           std::to_string(stats.host_live_bytes) + " bytes of host memory still count as live");
    expect(stats.reserved_bytes <= taken || keeps_memory, complaints,
           std::to_string(stats.reserved_bytes) + " bytes count as reserved, and the driver gave " +
               std::to_string(taken));
    const uint64_t of_device = now.device_bytes - before.device_bytes;
    constexpr uint64_t of_wait = kib;  // a pool waits for the device by a byte of cuMemAlloc
    constexpr uint64_t page = 2 * mib; // the driver takes whole ones for a block of cuMemAlloc
    const uint64_t counted = (stats.reserved_bytes + page - 1) / page * page + of_wait;
    expect(counted >= of_device || !counts_all, complaints,
           std::to_string(stats.reserved_bytes) + " bytes count as reserved, and " +
               std::to_string(of_device) + " of the device are held");
}

void judge_end(const Holdings &before, int64_t uncounted, const Outcome &outcome, const Plan &plan,
               Complaints &complaints) {
    const int64_t now = uncounted_bytes();
    // A pool that ends before its memory is given back takes that memory out of the account.
    expect(now == uncounted || (outcome.keeps_memory && now > uncounted) || plan.code, complaints,
           "the accounts miss " + std::to_string(now) + " bytes that the driver has handed out, " +
               std::to_string(uncounted) + " before");
    auto counters = sized<emm_counters>();
    emm_get_counters(&counters);
    expect(counters.pending_count == 0, complaints,
           std::to_string(counters.pending_count) + " frees are still pending");
    // Memory that the driver has refused to take back cannot be returned to it.
    const Holdings after = holdings();
    expect(after == before || outcome.keeps_memory || plan.code, complaints,
           "leaked: " + text_of(before) + " before, " + text_of(after) + " after");
    expect(races() == 0, complaints, "memory was handed over too early");
}

// Repeats the operation without failures; yet a filter stays.
void repeat(const Workload &workload, World *world, const Offer *offer, const Plan &plan,
            const Outcome &outcome, Complaints &complaints) {
    Run again(world, offer);
    (workload.again ? workload.again : workload.run)(again);
    if (plan.kind == Kind::sandbox) {
        judge_status(again, plan, outcome, complaints);
    } else {
        expect(!again.has_failed(), complaints,
               "it failed again when nothing was made to fail: " + again.failed_at());
    }
    again.clean_up();
    take_complaints(again, "the second time, ", complaints);
}

std::unique_ptr<World> make_world(const Workload &workload) {
    return workload.from_nothing ? nullptr : std::make_unique<World>(workload.device);
}

} // namespace

Verdict pass(const Workload &workload, const Plan &plan, const Offer *offer) {
    Verdict verdict;
    Complaints &complaints = verdict.complaints;
    const Holdings before = holdings();
    const int64_t uncounted = workload.from_nothing ? 0 : uncounted_bytes();
    std::unique_ptr<World> world = make_world(workload);
    bool is_unusable = false;
    {
        Run run(world.get(), offer, plan.code != 0);
        arm(plan);
        workload.run(run);
        run.clean_up();
        expect(run.is_clean() || run.status() != EMM_E_DEVICE_LOST, complaints,
               "the device is lost, and a free fails");
        if (plan.code && world) {
            const Inside broken;
            world->retire();
        }
        verdict.outcome = disarm();
        judge_status(run, plan, verdict.outcome, complaints);
        run.clean_up();
        expect(run.is_clean(), complaints, "something cannot be freed afterwards");
        take_complaints(run, "", complaints);
        // If dlopen lacks memory late (_dl_find_object_update), glibc 2.36 opens the library the
        // next time with its thread-local storage at address 0, where its first throw crashes.
        is_unusable = plan.kind == Kind::memory && workload.only_host &&
                      (run.status() == EMM_E_PLUGIN_UNLOADABLE ||
                       (plan.onwards && run.status() == EMM_E_OUT_OF_HOST_MEMORY));
        if (workload.leaves == Leaves::context && plan.code == 0) {
            judge_counters(run.context(), before, verdict.outcome.keeps_memory,
                           workload.counts_all && !plan.onwards, complaints);
        }
    }
    if (plan.code || is_unusable) {
        // Nothing comes after a broken device.
    } else if (workload.leaves == Leaves::no_context) {
        World other;
        repeat(workload, &other, offer, plan, verdict.outcome, complaints);
    } else {
        repeat(workload, world.get(), offer, plan, verdict.outcome, complaints);
    }
    world.reset();
    if (!workload.from_nothing) {
        judge_end(before, uncounted, verdict.outcome, plan, complaints);
    }
    return verdict;
}

Verdict pass_in_peace(const Workload &workload, const Offer *offer) {
    Verdict verdict;
    std::unique_ptr<World> world = make_world(workload);
    Run run(world.get(), offer);
    workload.run(run);
    if (run.has_failed()) {
        verdict.refused = workload.optional && run.status() == EMM_E_NOT_SUPPORTED;
        verdict.complaints.push_back("nothing was made to fail, and " + run.failed_at());
    }
    run.clean_up();
    return verdict;
}

} // namespace faults
