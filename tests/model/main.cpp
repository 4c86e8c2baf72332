// model [NAME=NUMBER...]: random steps through emm.h on the plugin in EMM_PLUGIN and the driver in
// EMM_DRIVER, each compared with a model. The names are those of Settings. A failure prints the
// latest steps; `seed=N rounds=1` repeats the round. Exit status 1: a rule was broken.
#include "../parts/settings.h"
#include "world.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <set>

using namespace model;

namespace {

Settings settings_of(int argc, char *argv[]) {
    Settings settings;
    const std::vector<Setting> known = {
        {"steps", &settings.steps},         {"rounds", &settings.rounds},
        {"seconds", &settings.seconds},     {"seed", &settings.seed},
        {"threads", &settings.threads},     {"contexts", &settings.contexts},
        {"live", &settings.live},           {"tight", &settings.tight},
        {"most", &settings.most},           {"judged", &settings.judged},
        {"last", &settings.last},           {"chosen", &settings.chosen},
        {"streams", &settings.streams},     {"unordered", &settings.unordered},
        {"abroad", &settings.abroad},       {"wrong", &settings.wrong},
        {"sections", &settings.sections},   {"trims", &settings.trims},
        {"ends", &settings.ends},           {"handles", &settings.handles},
        {"host", &settings.host},           {"graphs", &settings.graphs},
        {"joins", &settings.joins},         {"silent", &settings.silent},
        {"faults", &settings.faults},       {"pressure", &settings.pressure},
        {"peers", &settings.peers},         {"in_turn", &settings.in_turn},
        {"fail_call", &settings.fail_call}, {"fail_nth", &settings.fail_nth},
        {"resets", &settings.resets},       {"lives", &settings.lives},
        {"pools", &settings.pools},         {"beside", &settings.beside},
        {"forks", &settings.forks},         {"pauses", &settings.pauses},
        {"peaks", &settings.peaks},
    };
    for (int i = 1; i < argc; i++) {
        set(known, argv[i]);
    }
    if (settings.in_turn || settings.fail_call) {
        settings.faults = SIZE_MAX; // no others
    }
    return settings;
}

// Each step has a chance of its own, so that it does about the same when other steps are left out.
size_t run_round(const Settings &settings, size_t seed, const std::set<size_t> &chosen) {
    begin_steps(settings, seed);
    World *const world = new World(settings, seed); // left unchanged after a failure
    for (size_t number = 0; number < settings.steps; number++) {
        if (!settings.chosen || chosen.count(number)) {
            world->chance = Chance(seed * 1000003 + number);
            world->step(number);
        }
    }
    world->return_all_memory();
    const size_t calls = world->calls();
    delete world;
    return calls;
}

// Ends when a call of emm.h makes no further driver call, and the round no further such call.
void run_in_turn(Settings settings, size_t seed, const std::set<size_t> &chosen) {
    const Driver driver;
    size_t calls = 1;
    for (settings.fail_call = 1; settings.fail_call <= calls; settings.fail_call++) {
        uint64_t faults = 0;
        settings.fail_nth = 0;
        do {
            faults = driver.counters().faults;
            settings.fail_nth++;
            calls = run_round(settings, seed, chosen);
        } while (driver.counters().faults != faults);
    }
}

} // namespace

int main(int argc, char *argv[]) {
    size_t last = 0, round = 0;
    try {
        const bool is_peer = argc == 2 && std::string(argv[1]) == "peer";
        const Settings settings = settings_of(is_peer ? 1 : argc, argv);
        last = settings.last;
        std::set<size_t> chosen;
        for (size_t number = 0; settings.chosen && std::cin >> number;) {
            chosen.insert(number);
        }
        check(Driver().cuInit(0), "cuInit");
        if (is_peer) {
            return run_peer();
        }
        tell_steps_at_a_crash();
        using Clock = std::chrono::steady_clock;
        const auto end = Clock::now() + std::chrono::seconds(settings.seconds);
        for (; settings.seconds ? Clock::now() < end : round < settings.rounds; round++) {
            const size_t seed = settings.seed + round;
            if (settings.in_turn) {
                run_in_turn(settings, seed, chosen);
            } else {
                run_round(settings, seed, chosen);
            }
        }
        std::printf("%zu rounds of %zu steps\n", round, settings.steps);
        return 0;
    } catch (const std::exception &error) {
        tell_steps(last);
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
