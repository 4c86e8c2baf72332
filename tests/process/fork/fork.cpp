// Children that are forked at every bad moment. Each calls every function of emm, and is watched:
// it must answer and end, however it ends. What a child was doing when it hung is in memory that it
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
//     again,
//                  and forks as well: no child keeps a socket or a descriptor of memory
//     log-exit     an event log is open, and a child that no fork handler knows of exits
#include "entries.h"

#include "bridge.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr int most_seconds = 30; // that a child may take
constexpr int enough_hung = 3;

// What a child says, even if it never ends.
struct Report {
    char doing[128];
    char wrong[1024];
    bool done;
};
Report *report = nullptr;

int hung = 0, wrong = 0;

[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
    _exit(1);
}

void require(bool good, const char *what) {
    if (!good) {
        give_up(what);
    }
}

void say_doing(const char *what) {
    std::snprintf(report->doing, sizeof report->doing, "%s", what);
}

void say_wrong(const char *what) {
    if (report->wrong[0] == 0) {
        std::snprintf(report->wrong, sizeof report->wrong, "%.127s: %.127s: %.700s", report->doing,
                      what, emm_last_error()->text);
    }
}

// True if it has ended in time.
bool watch(pid_t child) {
    const timespec moment = {0, 500'000};
    timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    int status = 0;
    for (;;) {
        const pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            break;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec > most_seconds) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return false;
        }
        nanosleep(&moment, nullptr);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        say_wrong(WIFSIGNALED(status) ? "it was ended by a signal" : "it ended with an error");
    }
    return true;
}

void judge(bool ended) {
    if (!ended) {
        ++hung;
        std::fprintf(stderr, "a child hung in %s\n", report->doing);
    } else if (report->wrong[0] != 0 || !report->done) {
        ++wrong;
        std::fprintf(stderr, "a child did wrong, now in %s; %s\n", report->doing, report->wrong);
    }
}

enum class End { at_once, by_exit, by_its_thread };

// `act` runs in a child, which then ends in one way or another.
void fork_one(const std::function<void()> &act, End end) {
    *report = {};
    say_doing("its fork");
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        act();
        say_doing("its end");
        report->done = true;
        if (end == End::at_once) {
            _exit(0);
        } else if (end == End::by_exit) {
            std::exit(0);
        }
        pthread_exit(nullptr);
    }
    judge(watch(child));
}

// A real driver's exit handlers may wait for what a thread of the parent held.
bool only_at_once = false;

#if defined(__SANITIZE_THREAD__)
constexpr int ends = 2; // the sanitizer's own thread goes on when a child's first thread has ended
#else
constexpr int ends = 3;
#endif

End end_of(int round) {
    return only_at_once ? End::at_once : static_cast<End>(round % ends);
}

bool is_enough() {
    return hung >= enough_hung || wrong >= enough_hung;
}

void fork_many(int rounds, const std::function<void()> &act) {
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(act, end_of(round));
    }
}

// A real driver has threads of its own, which go on when a child's first thread has ended.
void fork_many_that_use_the_driver(int rounds, const std::function<void()> &act) {
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(act, round % 2 == 0 ? End::at_once : End::by_exit);
    }
}

// --- what a child does ---------------------------------------------------------------------------

Things things;
const emm_host *services = nullptr; // of the plugin that is linked in

void call_each(const std::vector<Entry> &table) {
    for (const Entry &entry : table) {
        say_doing(entry.name);
        if (!entry.is_refused(things)) {
            say_wrong(entry.allowed ? "it should go on in a child" : "it should be refused");
        }
    }
}

emm_status ignore(void *, uint32_t) {
    return EMM_OK;
}

void call_services() {
    if (!services) {
        return;
    }
    emm_ipc_source source = {};
    source.struct_size = sizeof source;
    emm_ipc_handle handle = {};
    say_doing("host->log");
    services->log(EMM_LOG_DEBUG, "from a forked child");
    say_doing("host->fail");
    services->fail(EMM_E_PLUGIN_FAILED, 0, "from a forked child");
    say_doing("host->driver");
    services->driver("cuInit", 12000) ? say_wrong("it should give nothing") : void();
    say_doing("host->defer");
    const bool refused = services->defer(things.context, &ignore, nullptr, 64) == EMM_E_FORKED &&
                         services->pressure(things.context, 64) == 0 &&
                         services->serve_ipc(things.context, &source, &handle) == EMM_E_FORKED &&
                         services->withdraw_ipc(things.context, &handle) == EMM_E_FORKED;
    refused ? void() : say_wrong("a service should be refused");
}

void be_refused() {
    call_each(entries());
    call_each(bridge_entries());
    call_services();
}

// A child that may go on, or was forked from what had begun: either, but it must not wait.
void answer_at_all() {
    say_doing("emm_get_plugin");
    emm_plugin_info plugin = {};
    plugin.struct_size = sizeof plugin;
    const emm_status got = emm_get_plugin(&plugin);
    say_doing("emm_set_plugin");
    const emm_status set = emm_set_plugin("passthrough");
    say_doing("emm_get_driver");
    emm_driver_info driver = {};
    driver.struct_size = sizeof driver;
    const emm_status driven = emm_get_driver(&driver);
    say_doing("emm_context_for_device");
    emm_context *context = nullptr;
    const emm_status made = emm_context_for_device(0, &context);
    const bool all = got >= EMM_OK && set >= EMM_OK && driven == EMM_OK && made == EMM_OK;
    const bool none = got == EMM_E_FORKED && set == EMM_E_FORKED && driven == EMM_E_FORKED &&
                      made == EMM_E_FORKED;
    all || none ? void() : say_wrong("it is served by halves");
}

void go_on() {
    say_doing("going on");
    emm_context *context = nullptr;
    emm_deviceptr ptr = 0;
    const bool served = emm_context_for_device(0, &context) == EMM_OK &&
                        emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &ptr) == EMM_OK &&
                        emm_memfree(context, ptr, 4096, EMM_STREAM_LEGACY) == EMM_OK;
    served ? void() : say_wrong("it should be served");
}

// --- what the parent does ------------------------------------------------------------------------

void make_things() {
    require(emm_context_for_device(0, &things.context) == EMM_OK, "a context");
    require(emm_memalloc(things.context, some_bytes, EMM_STREAM_LEGACY, &things.ptr) >= EMM_OK,
            "memalloc");
    require(emm_memhostalloc(things.context, some_bytes, 0, &things.host, nullptr) >= EMM_OK,
            "memhostalloc");
    require(emm_memory_alloc(things.context, some_bytes, EMM_STREAM_LEGACY, &things.memory) >=
                EMM_OK,
            "a handle");
    require(emm_memory_view(things.memory, 0, 64, &things.view) >= EMM_OK, "a view");
    things.page = std::aligned_alloc(4096, 4096);
    require(emm_torch_malloc(64, 0, EMM_STREAM_LEGACY), "the bridge");
    require(emm_numpy_handler(0), "the bridge's handler");
}

// Other threads that call `act` until the end of the scope.
class Busy {
public:
    explicit Busy(const std::vector<std::function<void()>> &acts) {
        for (const auto &act : acts) {
            threads_.emplace_back([this, act] {
                while (!over_) {
                    act();
                    ++turns_;
                }
            });
        }
        while (turns_ < 4 * acts.size()) {
            std::this_thread::yield();
        }
    }
    ~Busy() {
        over_ = true;
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }

private:
    std::atomic<bool> over_{false};
    std::atomic<size_t> turns_{0};
    std::vector<std::thread> threads_;
};

size_t give_nothing(emm_context *, size_t, void *) {
    return 0;
}

void pair_of_handles() {
    emm_memory *memory = nullptr, *pinned = nullptr;
    if (emm_memory_alloc(things.context, 4096, EMM_STREAM_UNORDERED, &memory) >= EMM_OK) {
        emm_memory_release(memory);
    }
    if (emm_memory_hostalloc(things.context, 4096, 0, &pinned) >= EMM_OK) {
        emm_memory_release(pinned);
    }
}

void every_kind() {
    emm_context *const context = things.context;
    emm_deviceptr ptr = 0;
    void *host = nullptr;
    if (emm_memalloc(context, 64 << 10, EMM_STREAM_UNORDERED, &ptr) >= EMM_OK) {
        emm_memfree(context, ptr, 64 << 10, EMM_STREAM_UNORDERED);
    }
    if (emm_memhostalloc(context, 4096, 0, &host, nullptr) >= EMM_OK) {
        emm_memhostfree(context, host, 4096, 0, EMM_STREAM_UNORDERED);
    }
    emm_counters counters = {};
    counters.struct_size = sizeof counters;
    emm_get_counters(&counters);
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    emm_get_stats(context, &stats);
    emm_driver_usage usage = {};
    usage.struct_size = sizeof usage;
    emm_get_driver_usage(&usage);
    emm_set_pressure_callback(&give_nothing, nullptr);
    emm_defer_cleanup_begin(context);
    emm_defer_cleanup_end(context);
    emm_ipc_handle handle = {};
    if (emm_memory_export(things.memory, &handle) >= EMM_OK) {
        emm_release_ipc_handle(context, &handle);
    }
    pair_of_handles();
    emm_trim(context, 0, nullptr);
}

// A complete plugin of four functions, for its host's services.
emm_status create(const emm_host *, const emm_context_info *, const char *const *,
                  emm_manager **ret_manager) {
    *ret_manager = reinterpret_cast<emm_manager *>(ret_manager);
    return EMM_OK;
}
emm_status destroy(emm_manager *) {
    return EMM_OK;
}
emm_status memalloc(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    *ret_ptr = 0x1000;
    return EMM_OK;
}
emm_status memfree(emm_manager *, emm_deviceptr, size_t, emm_stream) {
    return EMM_OK;
}

const emm_plugin *entry(const emm_host *host) {
    static emm_plugin table = [] {
        emm_plugin made = {};
        made.struct_size = sizeof made;
        made.interface_version = EMM_PLUGIN_ABI_MAJOR;
        made.name = "linked-in";
        made.create = &create;
        made.destroy = &destroy;
        made.memalloc = &memalloc;
        made.memfree = &memfree;
        return made;
    }();
    services = host;
    return &table;
}

void use_services() {
    services->log(EMM_LOG_DEBUG, "from a thread of the parent");
    services->defer(things.context, &ignore, nullptr, 64);
    services->pressure(things.context, 64);
}

// ROUNDS processes that have not used emm: each forks while its other thread is the first to.
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
    emm_plugin_info info = {};
    info.struct_size = sizeof info;
    emm_get_plugin(&info);
    emm_set_plugin("async");
}

bool is_simulated() {
    emm_driver_info info = {};
    info.struct_size = sizeof info;
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

// The call ends in both processes; the child's cannot ask the plugin any more.
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

// A child that is made without the fork handlers.
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

// --- descriptors ---------------------------------------------------------------------------------

struct Descriptors {
    int sockets = 0, memory = 0;
};

Descriptors count_descriptors() {
    Descriptors counted;
    for (const auto &each : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(each.path(), gone);
        counted.sockets += target.rfind("socket:", 0) == 0;
        counted.memory += target.find("memfd:simcuda") != std::string::npos;
    }
    return counted;
}

// What a child has that was forked when nothing was under way.
Descriptors *kept = nullptr;

void remember_kept() {
    *kept = count_descriptors();
}

// One descriptor of memory is the simulated driver's own, which opens what it is given once more.
void keep_no_more() {
    say_doing("counting its descriptors");
    const Descriptors counted = count_descriptors();
    if (counted.sockets > kept->sockets || counted.memory > kept->memory + 1) {
        char text[128];
        std::snprintf(text, sizeof text, "it kept %d sockets of %d, %d descriptors of memory of %d",
                      counted.sockets, kept->sockets, counted.memory, kept->memory);
        say_wrong(text);
    }
}

void fork_among(const std::vector<std::function<void()>> &acts, int rounds) {
    kept = static_cast<Descriptors *>(
        mmap(nullptr, sizeof *kept, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    fork_one(remember_kept, End::at_once);
    Busy busy(acts);
    for (int round = 0; round < rounds && !is_enough(); ++round) {
        fork_one(keep_no_more, End::at_once);
    }
}

void open_and_close(const emm_ipc_handle &handle) {
    emm_memory *memory = nullptr;
    if (emm_memory_open_ipc(things.context, &handle, &memory) >= EMM_OK) {
        emm_memory_release(memory);
    } else {
        say_wrong("an export should be opened");
    }
}

// The other process. It ends when its pipe does.
[[noreturn]] void import_for(int from, int to, int rounds) {
    emm_ipc_handle handle = {};
    require(read(from, &handle, sizeof handle) == sizeof handle, "a handle");
    require(emm_context_for_device(0, &things.context) == EMM_OK, "the importer's context");
    open_and_close(handle);
    require(write(to, "", 1) == 1, "the importer's word");
    fork_among({[&] { open_and_close(handle); }}, rounds);
    require(write(to, "", 1) == 1, "the importer's word");
    _exit(hung + wrong);
}

void export_and_end() {
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    if (emm_memory_alloc(things.context, some_bytes, EMM_STREAM_UNORDERED, &memory) >= EMM_OK) {
        if (emm_memory_export(memory, &handle) >= EMM_OK) {
            emm_release_ipc_handle(things.context, &handle);
        }
        emm_memory_release(memory);
    }
}

void fork_among_exports(int rounds) {
    int down[2], up[2];
    char word;
    require(pipe(down) == 0 && pipe(up) == 0, "pipes");
    const pid_t importer = fork(); // before emm is touched
    require(importer >= 0, "fork");
    if (importer == 0) {
        report = static_cast<Report *>(mmap(nullptr, sizeof *report, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        import_for(down[0], up[1], rounds);
    }
    require(emm_context_for_device(0, &things.context) == EMM_OK, "a context");
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    require(emm_memory_alloc(things.context, 64 << 20, nullptr, &memory) >= EMM_OK, "memory");
    require(emm_memory_export(memory, &handle) >= EMM_OK, "an export");
    require(write(down[1], &handle, sizeof handle) == sizeof handle, "a handle for the importer");
    require(read(up[0], &word, 1) == 1, "the importer's word");
    fork_among({export_and_end}, rounds);
    require(read(up[0], &word, 1) == 1, "the importer's word");
    int status = 0;
    waitpid(importer, &status, 0);
    wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

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
        emm_driver_info info = {};
        info.struct_size = sizeof info;
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
        require(emm_set_plugin_entry(&entry, nullptr) == EMM_OK, "a linked-in plugin");
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
    report = static_cast<Report *>(
        mmap(nullptr, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    run(argv[1], std::atoi(argv[2]));
    std::printf("%s: %d hung, %d wrong, %d unknown\n", argv[1], hung, wrong, unknown);
    std::fflush(stdout);
    _exit(hung != 0 || wrong != 0 || unknown != 0);
}
