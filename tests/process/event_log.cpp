// event_log SCENARIO [ARGUMENT]: a program that allocates and then ends in some way, with
// EMM_EVENT_LOG set or not. Its plugin gives out numbers: a number that one thread frees goes to
// the next thread that asks.
#include "../parts/sized.h"
#include "../parts/threads.h"

#include <emm/emm.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

std::mutex mutex;
auto &freed = *new std::vector<emm_deviceptr>; // outlives static destructors
emm_deviceptr unused = 0x1000;
std::atomic<bool> exhausted{false};

emm_status create(const emm_host *, const emm_context_info *, const char *const *,
                  emm_manager **ret_manager) {
    *ret_manager = reinterpret_cast<emm_manager *>(&unused);
    return EMM_OK;
}

emm_status destroy(emm_manager *) {
    return EMM_OK;
}

emm_status memalloc(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    if (exhausted) {
        return EMM_E_OUT_OF_MEMORY;
    }
    std::lock_guard lock(mutex);
    if (freed.empty()) {
        *ret_ptr = unused;
        unused += 0x1000;
    } else {
        *ret_ptr = freed.back();
        freed.pop_back();
    }
    return EMM_OK;
}

emm_status memfree(emm_manager *, emm_deviceptr ptr, size_t, emm_stream) {
    std::lock_guard lock(mutex);
    freed.push_back(ptr);
    return EMM_OK;
}

const emm_plugin *entry(const emm_host *) {
    static auto table = sized<emm_plugin>();
    table.interface_version = EMM_PLUGIN_ABI_MAJOR;
    table.name = "numbers";
    table.create = create;
    table.destroy = destroy;
    table.memalloc = memalloc;
    table.memfree = memfree;
    return &table;
}

emm_context *the_context = nullptr;

void check(emm_status status) {
    if (status < 0) {
        std::fprintf(stderr, "%s\n", emm_last_error()->text);
        std::_Exit(3);
    }
}

// The log names this function as the caller.
[[gnu::noinline]] emm_deviceptr allocate(size_t size) {
    emm_deviceptr ptr = 0;
    check(emm_memalloc(the_context, size, EMM_STREAM_LEGACY, &ptr));
    return ptr;
}

void release(emm_deviceptr ptr, size_t size) {
    check(emm_memfree(the_context, ptr, size, EMM_STREAM_LEGACY));
}

// `pairs` allocations and frees, three blocks being live at a time.
void churn(int pairs) {
    emm_deviceptr live[3] = {};
    for (int i = 0; i < pairs; ++i) {
        emm_deviceptr &block = live[i % 3];
        if (block) {
            release(block, 0);
        }
        block = allocate(static_cast<size_t>(i % 7 + 1) * 100);
    }
    for (const emm_deviceptr block : live) {
        release(block, 0);
    }
}

void on_threads(size_t count, int pairs) {
    in_threads(count, [=](size_t) { churn(pairs); });
}

void one_of_each() {
    void *host = nullptr;
    emm_deviceptr managed = 0;
    static char own[4096];
    const emm_deviceptr device = allocate(80);
    check(emm_memhostalloc(the_context, 4096, 0, &host, nullptr));
    check(emm_mempin(the_context, own, sizeof own, 0, nullptr));
    check(emm_memallocmanaged(the_context, 512, EMM_ATTACH_GLOBAL, &managed));
    check(emm_memfreemanaged(the_context, managed, 512, EMM_STREAM_LEGACY));
    check(emm_memunpin(the_context, own, sizeof own));
    check(emm_memhostfree(the_context, host, 4096, 0, EMM_STREAM_LEGACY));
    check(emm_defer_cleanup_begin(the_context));
    emm_memfree(the_context, device, 0, EMM_STREAM_UNORDERED);
    check(emm_defer_cleanup_end(the_context));
    exhausted = true;
    emm_deviceptr none = 0;
    emm_memalloc(the_context, 99, nullptr, &none);
    exhausted = false;
    check(emm_trim(the_context, 0, nullptr));
    const emm_deviceptr dropped = allocate(256);
    check(emm_context_reset(the_context));
    allocate(128);
    check(emm_context_retire(the_context));
    check(emm_memfree(the_context, dropped, 256, EMM_STREAM_LEGACY));
}

// The second context on the device takes 3000 bytes to its end, the first keeps 5000.
void use_two_contexts() {
    allocate(5000);
    int (*create_context)(void **, unsigned, int) = nullptr;
    create_context =
        reinterpret_cast<decltype(create_context)>(emm_driver_entry("cuCtxCreate", 3020));
    void *cuda_context = nullptr;
    check(create_context(&cuda_context, 0, 0) == 0 ? EMM_OK : EMM_E_INVALID_VALUE);
    emm_context *second = nullptr;
    emm_deviceptr dropped = 0;
    check(emm_context_current(&second));
    check(emm_memalloc(second, 3000, EMM_STREAM_LEGACY, &dropped));
    check(emm_context_retire(second));
}

void fork_a_child() {
    churn(10);
    const pid_t child = fork();
    if (child == 0) {
        emm_deviceptr ptr = 0;
        const bool refused = emm_memalloc(the_context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_FORKED;
        std::exit(refused ? 0 : 4); // with exit handlers
    }
    int status = 0;
    waitpid(child, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? EMM_OK : EMM_E_FORKED);
    churn(10);
}

void wait_for_a_line() {
    std::puts("recorded");
    std::fflush(stdout);
    std::getchar();
}

// A process must not complete the log that it is writing itself.
void recover_own_log() {
    churn(10);
    const emm_status status = emm_event_log_recover(std::getenv("EMM_EVENT_LOG"));
    std::fprintf(stderr, "%s\n", status < 0 ? emm_last_error()->text : "completed");
    check(status == EMM_E_BUSY ? EMM_OK : EMM_E_INVALID_VALUE);
    wait_for_a_line();
    churn(10);
}

// Another copy of libemm in the same process, with the same environment.
void use_second_copy() {
    churn(10);
    void *const copy = dlopen(std::getenv("EMM_TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    const auto set_entry =
        reinterpret_cast<decltype(&emm_set_plugin_entry)>(dlsym(copy, "emm_set_plugin_entry"));
    const auto get_context =
        reinterpret_cast<decltype(&emm_context_for_device)>(dlsym(copy, "emm_context_for_device"));
    emm_context *other = nullptr;
    check(set_entry(&entry, nullptr));
    check(get_context(0, &other));
    churn(10);
}

// Memory of the driver itself, as `emm run` tells of it.
void take_own(uint32_t kind, uint64_t bytes) {
    const emm_driver_memory memory = {sizeof memory, 0, kind, 0, bytes, nullptr};
    uint64_t id = 0;
    check(emm_take_driver_memory(&memory, &id));
    check(emm_keep_driver_memory(id, nullptr));
}

// The parent is killed, and its child lives on.
void leave_an_orphan() {
    on_threads(4, 5000);
    if (fork() == 0) {
        std::getchar();
        _exit(0);
    }
    raise(SIGKILL);
}

// More events than one write takes, at a rate that the writer thread can follow.
void churn_slowly() {
    for (int i = 0; i < 200; ++i) {
        churn(200);
        usleep(1000);
    }
    std::puts("came to its end");
}

// Called once the driver is there: the simulated driver makes files of its own.
void limit_files() {
    if (const char *const bytes = std::getenv("EMM_TEST_FILE_LIMIT")) {
        auto driver = sized<emm_driver_info>();
        check(emm_get_driver(&driver));
        const rlimit limit = {std::strtoul(bytes, nullptr, 10), RLIM_INFINITY};
        check(setrlimit(RLIMIT_FSIZE, &limit) == 0 ? EMM_OK : EMM_E_INVALID_VALUE);
    }
}

bool until_the_very_end = false;

// After the log's own exit handler, which has no priority.
[[gnu::destructor(101)]] void allocate_after_everything() {
    if (until_the_very_end) {
        churn(1000);
    }
}

void run(const char *scenario) {
    const auto is = [&](const char *name) { return std::strcmp(scenario, name) == 0; };
    if (is("each")) {
        one_of_each();
    } else if (is("contexts")) {
        use_two_contexts();
    } else if (is("threads")) {
        on_threads(8, 20'000);
    } else if (is("waves")) {
        for (int i = 0; i < 50; ++i) {
            on_threads(8, 30);
        }
    } else if (is("late")) {
        until_the_very_end = true;
        churn(10);
    } else if (is("leave")) {
        churn(10);
        allocate(3000);
    } else if (is("leave-own")) {
        churn(10);
        take_own(EMM_MEMORY_PHYSICAL, 4 << 20);
        take_own(EMM_MEMORY_ARRAY, 2 << 20);
    } else if (is("wait")) {
        churn(10);
        wait_for_a_line();
    } else if (is("recover-own")) {
        recover_own_log();
    } else if (is("twice")) {
        use_second_copy();
    } else if (is("orphan")) {
        leave_an_orphan();
    } else if (is("slowly")) {
        churn_slowly();
    } else if (is("chdir")) {
        churn(10);
        check(chdir("/") == 0 ? EMM_OK : EMM_E_INVALID_VALUE);
    } else if (is("fork")) {
        fork_a_child();
    } else {
        on_threads(4, 5000);
        is("abort") ? std::abort() : is("_exit") ? _exit(0) : (void)raise(SIGKILL);
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && std::strcmp(argv[1], "recover") == 0) {
        const emm_status status = emm_event_log_recover(argv[2]);
        std::fprintf(stderr, "%s\n", status < 0 ? emm_last_error()->text : "");
        return status < 0 ? 1 : 0;
    }
    check(emm_set_plugin_entry(&entry, nullptr));
    limit_files();
    check(emm_context_for_device(0, &the_context));
    run(argc > 1 ? argv[1] : "each");
}
