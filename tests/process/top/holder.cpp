// A program that uses emm, as `emm top` finds it. It carries out its arguments in order:
//
//     device=ORDINAL  what follows is on that device, at first on device 0
//     pool=NUMBER     what follows is in that named pool of the device, "pool-NUMBER"
//     alloc=COUNT     allocates so many blocks of 1 MiB, and keeps them
//     grow=COUNT      the same until it is refused, and prints how many of them it got
//     fill            the same with no end but that, and prints how many it has
//     free=COUNT      frees so many of them, the newest first
//     block=SIZE      allocates one block of so many MiB, and frees it
//     hold=COUNT      allocates so many blocks of 1 MiB, and frees them: its plugin may keep them
//     trim, pause
//     used, limit, told   prints MiB: what counts against its bound, that, and what CUDA says is
//     free steady=COUNT    allocates and frees so many blocks a second on a thread, from here on
//     slow            its plugin is one that is linked in, and hangs in get_stats from `hang` on
//     hang, resume
//     retire, shutdown
//     fork            prints the id of a child, which sleeps for a minute
//     closefrom       closes every descriptor above 2, and opens as many files in their place
//     threads         prints how many threads there are, without the one that a question starts
//     descriptors     prints how many descriptors there are
//     exit
//     ready           prints the process id
//     wait            until standard input ends
#include "../../parts/sized.h"

#include <emm/emm.h>
#include <emm/plugin_helpers.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

std::atomic<bool> hangs{false};
std::atomic<uint64_t> made{0};

void require(bool good, const char *what) {
    if (!good) {
        std::fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
        std::_Exit(1);
    }
}

// Hands out addresses of no memory.
const emm_plugin *slow_plugin(const emm_host *) {
    static emm_plugin table;
    table.struct_size = sizeof table;
    table.interface_version = EMM_PLUGIN_ABI_MAJOR;
    table.name = "slow";
    table.version = "1 \033[31m\"\\";
    table.create = [](const emm_host *, const emm_context_info *, const char *const *,
                      emm_manager **ret_manager) -> emm_status {
        *ret_manager = reinterpret_cast<emm_manager *>(&table);
        return EMM_OK;
    };
    table.destroy = [](emm_manager *) -> emm_status { return EMM_OK; };
    table.memalloc = [](emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) -> emm_status {
        *ret_ptr = (made += 1) << 20;
        return EMM_OK;
    };
    table.memfree = [](emm_manager *, emm_deviceptr, size_t, emm_stream) -> emm_status {
        return EMM_OK;
    };
    table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        while (hangs) {
            usleep(1000);
        }
        auto stats = sized<emm_stats>();
        stats.allocations = made;
        emm_copy_sized(ret_stats, &stats);
        return EMM_OK;
    };
    return &table;
}

emm_context *known = nullptr;

void use_device(unsigned ordinal) {
    emm_context *found = nullptr;
    require(emm_context_for_device(static_cast<int32_t>(ordinal), &found) == EMM_OK,
            "emm_context_for_device");
    known = found;
}

emm_context *context() {
    if (!known) {
        use_device(0);
    }
    return known;
}

void use_pool(unsigned number) {
    emm_context *found = nullptr;
    const std::string name = "pool-" + std::to_string(number);
    require(emm_context_named(context(), name.c_str(), nullptr, &found) == EMM_OK,
            "emm_context_named");
    known = found;
}

constexpr size_t mib = 1 << 20;

emm_deviceptr allocated(emm_context *where) {
    emm_deviceptr ptr = 0;
    require(emm_memalloc(where, mib, EMM_STREAM_LEGACY, &ptr) == EMM_OK, "emm_memalloc");
    return ptr;
}

std::vector<emm_deviceptr> kept;

// At most so many.
size_t grow(size_t most) {
    for (size_t got = 0; got < most; ++got) {
        emm_deviceptr ptr = 0;
        if (emm_memalloc(context(), mib, EMM_STREAM_LEGACY, &ptr) != EMM_OK) {
            require(std::strstr(emm_last_error()->text, "EMM_LIMIT") != nullptr,
                    "a refusal by the bound");
            return got;
        }
        kept.push_back(ptr);
    }
    return most;
}

void free_some(unsigned count) {
    for (unsigned i = 0; i < count && !kept.empty(); ++i) {
        require(emm_memfree(context(), kept.back(), 0, EMM_STREAM_LEGACY) >= EMM_OK, "emm_memfree");
        kept.pop_back();
    }
}

void keep(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        kept.push_back(allocated(context()));
    }
}

// The account of device 0.
emm_device_account account() {
    auto account = sized<emm_device_account>();
    require(emm_get_device_account(0, &account) == EMM_OK, "emm_get_device_account");
    return account;
}

size_t told() {
    size_t free = 0, total = 0;
    require(emm_get_memory_info(context(), &free, &total) == EMM_OK, "emm_get_memory_info");
    return free;
}

void allocate_steadily(unsigned rate) {
    std::thread([rate, where = context()] {
        for (;;) {
            require(emm_memfree(where, allocated(where), 0, EMM_STREAM_LEGACY) >= EMM_OK,
                    "emm_memfree");
            usleep(1'000'000 / rate);
        }
    }).detach();
}

void leave_child() {
    std::fflush(stdout);
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        alarm(60);
        pause();
    }
    std::printf("child %d\n", child);
}

void replace_descriptors() {
    for (int each = 3; each < 256; ++each) {
        close(each);
    }
    for (int each = 3; each < 64; ++each) {
        require(open("/dev/null", O_RDONLY | O_CLOEXEC) == each, "open");
    }
}

// Another test's tool may be asking this process.
int threads() {
    int count = 0;
    for (const auto &thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(thread.path() / "comm"); // empty: the thread has ended
        std::string name;
        count += std::getline(file, name) && name != "emm-top-ask";
    }
    return count;
}

void carry_out(const std::string &step) {
    const size_t equals = step.find('=');
    const std::string what = step.substr(0, equals);
    const unsigned count =
        equals == std::string::npos
            ? 0
            : static_cast<unsigned>(std::strtoul(step.c_str() + equals + 1, nullptr, 10));
    if (what == "device") {
        use_device(count);
    } else if (what == "pool") {
        use_pool(count);
    } else if (what == "alloc") {
        keep(count);
    } else if (what == "fill") {
        grow(SIZE_MAX);
        std::printf("filled %zu\n", kept.size());
    } else if (what == "grow") {
        std::printf("grown %zu\n", grow(count));
    } else if (what == "block") {
        emm_deviceptr block = 0;
        require(emm_memalloc(context(), count * mib, EMM_STREAM_UNORDERED, &block) == EMM_OK,
                "emm_memalloc");
        require(emm_memfree(context(), block, count * mib, EMM_STREAM_UNORDERED) == EMM_OK,
                "emm_memfree");
    } else if (what == "free") {
        free_some(count);
    } else if (what == "hold") {
        keep(count);
        free_some(count);
    } else if (what == "trim") {
        require(emm_trim(context(), 0, nullptr) == EMM_OK, "emm_trim");
    } else if (what == "pause") {
        require(emm_context_pause(context(), EMM_PAUSE_DISCARD, nullptr) == EMM_OK,
                "emm_context_pause");
    } else if (what == "used") {
        std::printf("used %zu\n", size_t(account().used_bytes / mib));
    } else if (what == "limit") {
        std::printf("limit %zu\n", size_t(account().limit_bytes / mib));
    } else if (what == "told") {
        std::printf("told %zu\n", told() / mib);
    } else if (what == "steady") {
        allocate_steadily(count);
    } else if (what == "slow") {
        require(emm_set_plugin_entry(&slow_plugin, nullptr) == EMM_OK, "emm_set_plugin_entry");
    } else if (what == "hang" || what == "resume") {
        hangs = what == "hang";
    } else if (what == "retire") {
        require(emm_context_retire(context()) == EMM_OK, "emm_context_retire");
    } else if (what == "shutdown") {
        require(emm_shutdown() == EMM_OK, "emm_shutdown");
    } else if (what == "fork") {
        leave_child();
    } else if (what == "closefrom") {
        replace_descriptors();
    } else if (what == "threads") {
        std::printf("threads %d\n", threads());
    } else if (what == "descriptors") {
        std::printf("descriptors %td\n",
                    std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}) - 1);
    } else if (what == "exit") {
        std::exit(0);
    } else if (what == "ready") {
        std::printf("ready %d\n", getpid());
    } else if (what == "wait") {
        char line[64];
        while (std::fgets(line, sizeof line, stdin)) {
            line[std::strcspn(line, "\n")] = 0;
            carry_out(line); // lets a test go on
        }
    } else {
        std::fprintf(stderr, "%s: no such step\n", step.c_str());
        std::_Exit(2);
    }
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        carry_out(argv[i]);
    }
    return 0;
}
