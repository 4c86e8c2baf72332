#include "fault.h"

#include "../parts/failing_calls.h"
#include "../parts/sandbox.h"
#include "../parts/simulator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace faults {
namespace {

Simulator simulator;
thread_local int depth_outside = 0; // a thread of emm's has never been told

bool is_emms(const void *caller) {
    return depth_outside == 0 && !simulator.calls(caller);
}

constexpr const char *takes_back[] = {
    "cuMemFree",       "cuMemFreeAsync",      "cuMemFreeHost",    "cuMemHostUnregister",
    "cuMemUnmap",      "cuMemRelease",        "cuMemAddressFree", "cuMemPoolDestroy",
    "cuMemPoolTrimTo", "cuIpcCloseMemHandle",
};

uint64_t refusals() {
    uint64_t sum = 0;
    for (const char *name : takes_back) {
        sum += simulator.fault_count(name);
    }
    return sum;
}

uint64_t driver_faults() {
    return counters().faults;
}

bool is_armed = false, is_for_good = false, is_for_all = false;
uint64_t faults_before = 0, refusals_before = 0;

struct Forbidden {
    const char *name;
    int number;
};
constexpr Forbidden forbidden[] = {
    {"membarrier", __NR_membarrier},
    {"memfd_create", __NR_memfd_create},
    {"userfaultfd", __NR_userfaultfd},
    {"process_vm_readv", __NR_process_vm_readv},
    {"clone3", __NR_clone3},
    {"socket", __NR_socket},
    {"connect", __NR_connect},
    {"sendmsg", __NR_sendmsg},
    {"recvmsg", __NR_recvmsg},
    {"getsockopt", __NR_getsockopt},
    {"getsockname", __NR_getsockname},
    {"get_mempolicy", __NR_get_mempolicy},
    {"set_mempolicy", __NR_set_mempolicy},
    {"madvise", __NR_madvise},
    {"fallocate", __NR_fallocate},
    {"getrandom", __NR_getrandom},
    {"sched_getaffinity", __NR_sched_getaffinity},
    {"sched_setaffinity", __NR_sched_setaffinity},
    {"readlinkat", __NR_readlinkat},
    {"statx", __NR_statx},
    {"getxattr", __NR_lgetxattr},
    {"flock", __NR_flock},
};

const char *error_in_force = nullptr; // of a filter

void set_filter(const Plan &plan) {
    simulator.cuInit(0); // it needs a file in memory
    for (const Forbidden &each : forbidden) {
        if (std::strcmp(each.name, plan.name) == 0 && !forbid(each.number, plan.error)) {
            std::fprintf(stderr, "no filter can be set here\n");
            std::_Exit(77);
        }
    }
    error_in_force = std::strerror(plan.error);
}

void arm_driver(const Plan &plan) {
    const std::string code = plan.code ? ":" + std::to_string(plan.code) : "";
    const std::string first = "any@" + std::to_string(plan.first) + (plan.onwards ? "+" : code);
    simulator.fail(first.c_str());
    if (plan.second) {
        simulator.fail(("any@" + std::to_string(plan.second)).c_str());
    }
}

} // namespace

simcuda_counters counters() {
    return simulator.counters();
}

std::string text_of(const Plan &plan) {
    const char *const kinds[] = {"driver call", "allocation", "thread", "system call", "filter of"};
    std::string text =
        std::string(plan.name ? plan.name : kinds[static_cast<int>(plan.kind)]) + " ";
    text += std::to_string(plan.first);
    text += plan.onwards  ? " and all after it"
            : plan.second ? " and " + std::to_string(plan.second)
                          : "";
    text += plan.error ? std::string(", ") + std::strerror(plan.error) : "";
    return text + (plan.code ? " with error " + std::to_string(plan.code) : "");
}

void open_driver() {
    simulator.open();
    simulator.spare(1);
    depth_outside = 1;
}

void arm(const Plan &plan) {
    is_armed = true;
    is_for_good = plan.onwards;
    is_for_all = plan.onwards && !plan.name;
    faults_before = driver_faults();
    refusals_before = refusals();
    if (plan.kind == Kind::driver) {
        return arm_driver(plan);
    }
    if (plan.kind == Kind::sandbox) {
        return set_filter(plan);
    }
    const auto kind = plan.kind == Kind::memory    ? failing_calls::Kind::memory
                      : plan.kind == Kind::threads ? failing_calls::Kind::threads
                                                   : failing_calls::Kind::system;
    failing_calls::arm({kind, plan.first, plan.onwards, plan.second, plan.name}, &is_emms);
}

Outcome disarm() {
    is_armed = false;
    failing_calls::disarm();
    simulator.fail(nullptr);
    Outcome outcome;
    outcome.failed = static_cast<unsigned>(driver_faults() - faults_before);
    outcome.last = outcome.failed ? simulator.last_fault() : failing_calls::last_failure();
    outcome.failed += failing_calls::failures() + (error_in_force ? 1 : 0);
    outcome.without_record = failing_calls::has_failed("pthread_key_create") ||
                             failing_calls::has_failed("pthread_setspecific");
    outcome.keeps_memory = refusals() != refusals_before;
    return outcome;
}

bool has_failed() {
    return error_in_force ||
           (is_armed && (failing_calls::failures() != 0 || driver_faults() != faults_before));
}

bool fails_for_good() {
    return is_armed && is_for_good;
}

bool all_fail_from_now() {
    return is_armed && is_for_all;
}

bool tells_reason(const std::string &text) {
    return failing_calls::tells_reason(text) ||
           (error_in_force && text.find(error_in_force) != text.npos);
}

const char *forbidden_call(unsigned number) {
    return number < std::size(forbidden) ? forbidden[number].name : nullptr;
}

const char *system_call(unsigned number) {
    return failing_calls::name_of(failing_calls::Kind::system, number);
}

Inside::Inside() {
    simulator.spare(0);
    --depth_outside;
}

Inside::~Inside() {
    ++depth_outside;
    simulator.spare(1);
}

Outside::Outside() {
    ++depth_outside;
    simulator.spare(1);
}

Outside::~Outside() {
    --depth_outside;
    simulator.spare(depth_outside);
}

} // namespace faults
