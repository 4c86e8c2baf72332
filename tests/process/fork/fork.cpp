// Children that are forked at every bad moment. Each calls every function of emm, and is watched:
// it must answer and end, in any way. A child that hangs has left its present act in memory that it
// shares with this process.
//
//     fork STATE ROUNDS LIBEMM.exports BRIDGE.exports
//
// STATE is what the other threads of the parent do when it forks:
//     quiet        nothing
//     traffic      every kind of call, from four threads
//     reset        one resets the context, two make and release handles
//     within       the fork comes from within a call, by its callback or hook; two make handles
//     logging      plugins log, defer and ask for memory through their host's services
//     first-load   one is the first to load the driver; ROUNDS processes begin anew
//     first-plugin one loads the first plugin; likewise
//     driver-only  the parent has loaded the driver and asked for nothing else
//     untouched    nothing has been asked of emm, or no more than a plugin was chosen
//     exports      one makes exports and ends them, while another process opens one again and
//                  again, and forks as well: no child keeps a socket or a descriptor of memory
//     log-exit     an event log is open, and a child that no fork handler knows of exits
#include "children.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

using namespace forked;

namespace {

// ROUNDS processes without emm so far: each forks while its other thread is the first to use it.
void fork_at_first(int rounds, const std::function<void()> &first) {
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        const pid_t fresh = fork();
        require(fresh >= 0, "fork");
        if (fresh == 0) {
            std::atomic<bool> begun{false};
            std::thread thread([&] {
                begun = true;
                first();
            });
            while (!begun) {
            }
            for (int i = 0; i < 12 && !is_enough(); ++i) {
                fork_one(answer_at_all, End::at_once);
            }
            _exit(hung != 0 ? 2 : wrong != 0 ? 3 : 0);
        }
        int status = 0;
        waitpid(fresh, &status, 0);
        hung += WIFEXITED(status) && WEXITSTATUS(status) == 2;
        wrong += !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 2);
    }
}

void load_driver() {
    emm_context *context = nullptr;
    emm_context_for_device(0, &context);
}

void load_plugin() {
    auto info = sized<emm_plugin_info>();
    emm_get_plugin(&info);
    emm_set_plugin("async");
}

bool is_simulated() {
    auto info = sized<emm_driver_info>();
    return emm_get_driver(&info) == EMM_OK && info.simulated != 0;
}

// --- forks from within a call --------------------------------------------------------------------

pid_t made_within = -1;
size_t whole_device = 0; // more than is free of it, and no more than what a recovery is tried for

size_t fork_and_give_back(emm_context *, size_t, void *) {
    made_within = fork();
    return 1;
}

void fork_and_go_on(const emm_event *event, void *) {
    if (event->size == whole_device) {
        made_within = fork();
    }
}

// The call ends in both processes; the child's call can no longer ask the plugin.
void fork_within(const char *what, emm_status in_child) {
    *report = {};
    say_doing(what);
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(things.context, whole_device, nullptr, &ptr);
    if (made_within == 0) {
        status == in_child ? void() : say_wrong("the call it was forked within answers otherwise");
        be_refused();
        report->done = true;
        _exit(0);
    }
    require(status == EMM_E_OUT_OF_MEMORY && made_within > 0, "running out of memory");
    judge(watch(made_within));
}

void fork_within_calls(int rounds) {
    size_t free = 0;
    require(emm_get_memory_info(things.context, &free, &whole_device) == EMM_OK,
            "the device's size");
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        emm_set_pressure_callback(&fork_and_give_back, nullptr);
        fork_within("a call, from its pressure callback", EMM_E_FORKED);
        emm_set_pressure_callback(nullptr, nullptr);
        emm_set_event_hook(&fork_and_go_on, nullptr, nullptr);
        fork_within("a call, from its hook", EMM_E_OUT_OF_MEMORY);
        emm_set_event_hook(nullptr, nullptr, nullptr);
    }
}

// Makes a child without the fork handlers.
pid_t fork_quietly() {
#if defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 34)
    return _Fork();
#endif
#endif
    std::fprintf(stderr, "there is no _Fork here\n");
    _exit(77);
}

void exit_beside_log() {
    make_things();
    std::string log = getenv("EMM_EVENT_LOG");
    log.replace(log.find("%p"), 2, std::to_string(getpid()));
    const std::string spool = log + ".spool";
    require(std::filesystem::exists(spool), "an event log's spool");
    const pid_t child = fork_quietly();
    if (child == 0) {
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's end");
    require(std::filesystem::exists(spool), "the spool after a child's end");
    std::filesystem::remove(spool);
    std::filesystem::remove(log);
}

// -------------------------------------------------------------------------------------------------

void run(const std::string &state, int rounds) {
    if (state == "exports") {
        return fork_among_exports(rounds);
    }
    if (state == "first-load") {
        return fork_at_first(rounds, load_driver);
    }
    if (state == "first-plugin") {
        return fork_at_first(rounds, load_plugin);
    }
    if (state == "log-exit") {
        return exit_beside_log();
    }
    if (state == "untouched") {
        fork_many_that_use_the_driver(rounds, go_on);
        require(emm_set_plugin("pool") >= EMM_OK, "choosing a plugin");
        return fork_many_that_use_the_driver(rounds, go_on);
    }
    if (state == "driver-only") {
        auto info = sized<emm_driver_info>();
        require(emm_get_driver(&info) == EMM_OK, "the driver");
        return fork_one(
            [] {
                answer_at_all();
                emm_context *context = nullptr;
                emm_context_for_device(0, &context) == EMM_E_FORKED ? void()
                                                                    : say_wrong("not refused");
            },
            End::by_exit);
    }
    if (state == "logging") {
        require(emm_set_plugin_entry(&linked_in_plugin, nullptr) == EMM_OK, "a linked-in plugin");
    }
    make_things();
    std::vector<std::function<void()>> acts;
    if (state == "traffic") {
        acts.assign(4, every_kind);
    } else if (state == "reset") {
        acts = {[] { emm_context_reset(things.context); }, pair_of_handles, pair_of_handles};
    } else if (state == "within") {
        acts.assign(2, pair_of_handles);
    } else if (state == "logging") {
        acts.assign(3, use_services);
    } else {
        require(state == "quiet", "a state that is known");
    }
    only_at_once = !acts.empty() && !is_simulated();
    auto *const busy = new Busy(acts); // a child that ends by its thread unwinds, and has no others
    state == "within" ? fork_within_calls(rounds) : fork_many(rounds, be_refused);
    delete busy;
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc != 5) {
        return 2;
    }
    int unknown = 0;
    for (const auto &[table, list] :
         {std::pair(&entries(), argv[3]), std::pair(&bridge_entries(), argv[4])}) {
        for (const std::string &difference : differences(*table, list)) {
            std::fprintf(stderr, "%s\n", difference.c_str());
            ++unknown;
        }
    }
    share_report();
    run(argv[1], std::atoi(argv[2]));
    std::printf("%s: %d hung, %d wrong, %d unknown\n", argv[1], hung, wrong, unknown);
    std::fflush(stdout);
    _exit(hung != 0 || wrong != 0 || unknown != 0);
}
