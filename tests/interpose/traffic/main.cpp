// driver-traffic [NAME=NUMBER...]: random traffic of several threads by a program on the driver API
// that knows nothing of emm, natively or with the interposer between. It checks what CUDA promises:
// that calls succeed, that blocks keep what was written, that a block stands alone, that nothing is
// left in the end. The simulated driver, with EMM_SIM=devices=3, stops it at any use of memory that
// was handed out early; on a GPU it does without what only that can tell. The names are those of
// Settings. Exit status 1: something was wrong. If the context is lost, the process ends with the
// latest calls of each thread.
#include "../../parts/settings.h"
#include "calls.h"
#include "world.h"

#include <cstdio>
#include <simcuda.h>

namespace {

Settings settings_of(int argc, char *argv[]) {
    Settings settings;
    const std::vector<Setting> known = {
        {"steps", &settings.steps},       {"seconds", &settings.seconds},
        {"threads", &settings.threads},   {"rounds", &settings.rounds},
        {"live", &settings.live},         {"read_back", &settings.read_back},
        {"captures", &settings.captures}, {"scarce", &settings.scarce},
        {"seed", &settings.seed},         {"calls", &settings.calls},
        {"managed", &settings.managed},   {"pools", &settings.pools},
        {"abroad", &settings.abroad},     {"foreign", &settings.foreign},
        {"wander", &settings.wander},     {"handed", &settings.handed},
        {"pinned", &settings.pinned},     {"replaced", &settings.replaced},
        {"lives", &settings.lives},       {"per_thread", &settings.per_thread},
        {"updates", &settings.updates},   {"meetings", &settings.meetings},
        {"returned", &settings.returned},
    };
    for (int i = 1; i < argc; i++) {
        if (set(known, argv[i]) == &settings.seconds) {
            settings.steps = 0;
        }
    }
    return settings;
}

// All 0 on a GPU.
simcuda_counters given_out() {
    simcuda_counters counters = {};
    counters.struct_size = sizeof counters;
    void *entry = nullptr;
    check(find_simulator_entry("simcuda_get_counters", &entry), "simcuda_get_counters");
    if (entry) {
        reinterpret_cast<decltype(&simcuda_get_counters)>(entry)(&counters);
    }
    return counters;
}

void expect_same(uint64_t before, uint64_t after, const char *what) {
    if (before != after) {
        throw std::runtime_error("the round has left " + std::string(what) + ": " +
                                 std::to_string(before) + " before, " + std::to_string(after) +
                                 " after");
    }
}

// The driver's own pools keep their memory until a wait or a trim.
void trim_default_pools(const Machine &machine) {
    for (CUdevice device = 0; device < machine.devices; device++) {
        CUmemoryPool pool = nullptr;
        check(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
        check(cu.cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
    }
}

void run_rounds(const Settings &settings) {
    check(cu.cuInit(0), "cuInit");
    const Machine machine = find_machine();
    const simcuda_counters before = given_out();
    for (size_t round = 0; round < settings.rounds; round++) {
        std::printf("seed %zu\n", settings.seed + round);
        std::fflush(stdout);
        World(settings, machine, settings.seed + round).run();
        trim_default_pools(machine);
        const simcuda_counters after = given_out();
        expect_same(before.objects, after.objects, "objects of the driver");
        expect_same(before.device_blocks, after.device_blocks, "blocks of device memory");
        expect_same(before.device_bytes, after.device_bytes, "bytes of device memory");
        expect_same(before.host_blocks, after.host_blocks, "blocks of host memory");
        expect_same(before.host_bytes, after.host_bytes, "bytes of host memory");
    }
}

} // namespace

int main(int argc, char *argv[]) {
    try {
        const std::string missing = find_driver("dlsym");
        if (!missing.empty()) {
            throw std::runtime_error(missing);
        }
        const Settings settings = settings_of(argc, argv);
        watch_calls(settings.calls);
        run_rounds(settings);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
