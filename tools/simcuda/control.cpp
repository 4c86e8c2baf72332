#include "call.h"
#include "simcuda.h"
#include "simulator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace simcuda {
namespace {

int complain_of(const std::string &why) {
    fprintf(stderr, "simcuda: %s\n", why.c_str());
    return CUDA_ERROR_INVALID_VALUE;
}

// Counts of live objects, beside memory.
uint64_t objects_of(const Simulator &simulator) {
    return simulator.events.count() + simulator.streams.count() + simulator.pool_handles.count() +
           simulator.graphs.count() + simulator.executables.count() +
           simulator.user_objects.count() + simulator.reservations.size();
}

} // namespace
} // namespace simcuda

using namespace simcuda;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void simcuda_get_counters(simcuda_counters *out) {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    collect_unheld();
    simcuda_counters counters = {};
    counters.struct_size = out->struct_size;
    counters.races = simulator.races;
    counters.device_bytes = simulator.device_totals.now;
    counters.peak_device_bytes = simulator.device_totals.peak;
    counters.host_bytes = simulator.host_totals.now;
    counters.peak_host_bytes = simulator.host_totals.peak;
    counters.calls = calls_of_all();
    counters.device_blocks = simulator.device_totals.blocks;
    counters.host_blocks = simulator.host_totals.blocks;
    counters.faults = simulator.faults.injected();
    counters.objects = objects_of(simulator);
    counters.waiting = simulator.work.waiting();
    memcpy(out, &counters, std::min<size_t>(out->struct_size, sizeof counters));
}

EXPORT void simcuda_reset_peaks() {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    simulator.device_totals.peak = simulator.device_totals.now;
    simulator.host_totals.peak = simulator.host_totals.now;
}

EXPORT uint64_t simcuda_call_count(const char *name) {
    return name ? calls_of(name) : 0;
}

EXPORT const char *simcuda_last_race() {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    snprintf(this_thread.last_race, sizeof this_thread.last_race, "%s",
             simulator.last_race.c_str());
    return this_thread.last_race;
}

EXPORT const char *simcuda_complaint() {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    return (simulator.bad_options.empty() ? simulator.no_room : simulator.bad_options).c_str();
}

EXPORT int simcuda_configure(const char *options) {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    if (simulator.stage.load() != Stage::fresh) {
        return complain_of("simcuda_configure comes before cuInit");
    }
    apply_options(simulator, options);
    return simulator.bad_options.empty() ? CUDA_SUCCESS : complain_of(simulator.bad_options);
}

EXPORT void simcuda_spare(int spared) {
    this_thread.spared = spared != 0;
}

EXPORT uint64_t simcuda_fault_count(const char *name) {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    return name ? simulator.faults.injected(name) : 0;
}

EXPORT const char *simcuda_last_fault() {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    return simulator.faults.last();
}

EXPORT int simcuda_is_inside() {
    return this_thread.call && !this_thread.in_callback;
}

EXPORT int simcuda_fail(const char *fault) {
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    if (!fault || !*fault) {
        simulator.faults.disarm();
        simulator.faulty.store(false);
        simulator.sticky = CUDA_SUCCESS;
        return CUDA_SUCCESS;
    }
    const std::string wrong = simulator.faults.arm(fault);
    simulator.faulty.store(simulator.faults.armed());
    return wrong.empty() ? CUDA_SUCCESS : complain_of(wrong);
}
