// traffic [NAME=NUMBER...]: random traffic of several threads through the plugin in EMM_PLUGIN, on
// the driver in EMM_DRIVER, which shows memory that was handed out early. The names are those of
// Settings. Exit status 1: a check failed; 77: the machine has too few devices.
#include "../parts/settings.h"
#include "traffic.h"

#include <cstdio>
#include <simcuda.h>

namespace {

Settings settings_of(int argc, char *argv[]) {
    Settings settings;
    const std::vector<Setting> known = {
        {"steps", &settings.steps},         {"seconds", &settings.seconds},
        {"threads", &settings.threads},     {"lives", &settings.lives},
        {"contexts", &settings.contexts},   {"live", &settings.live},
        {"read_back", &settings.read_back}, {"tight", &settings.tight},
        {"full", &settings.full},           {"captures", &settings.captures},
        {"rounds", &settings.rounds},       {"seed", &settings.seed},
    };
    for (int i = 1; i < argc; i++) {
        if (set(known, argv[i]) == &settings.seconds) {
            settings.steps = 0;
        }
    }
    return settings;
}

// The memory that the simulated driver has given out; on a real driver 0, because other programs
// share it.
simcuda_counters given_out() {
    auto counters = sized<simcuda_counters>();
    if (const emm_function entry = emm_driver_entry("simcuda_get_counters", 12000)) {
        reinterpret_cast<decltype(&simcuda_get_counters)>(entry)(&counters);
    }
    return counters;
}

bool has_devices_for(const Settings &settings) {
    auto driver = sized<emm_driver_info>();
    check(emm_get_driver(&driver), "emm_get_driver");
    return !settings.full || driver.device_count > 1;
}

void run_rounds(const Settings &settings) {
    for (size_t round = 0; round < settings.rounds; round++) {
        const simcuda_counters before = given_out();
        Traffic traffic(settings, settings.seed + round);
        traffic.run();
        const simcuda_counters after = given_out();
        if (after.objects != before.objects) {
            throw std::runtime_error("the round has left objects of the driver behind");
        }
        if (after.device_bytes > before.device_bytes || after.host_bytes > before.host_bytes) {
            throw std::runtime_error("the round has left memory of the driver behind");
        }
    }
}

} // namespace

int main(int argc, char *argv[]) {
    try {
        const Settings settings = settings_of(argc, argv);
        check(Cuda().cuInit(0), "cuInit");
        if (!has_devices_for(settings)) {
            std::puts("skipped: there is one device, and with `full` there is to be another one");
            return 77;
        }
        run_rounds(settings);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
