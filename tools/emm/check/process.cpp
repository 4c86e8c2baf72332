// Other processes, and the end of this process.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"
#include "child.h"
#include "problem.h"

#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace emm::tool::check {
namespace {

constexpr size_t exported_size = 20 * mib;

std::string in_hexadecimal(const emm_ipc_handle &handle) {
    std::string text;
    for (size_t i = 0; i < sizeof handle; i++) {
        text += fmt::format("{:02x}", reinterpret_cast<const unsigned char *>(&handle)[i]);
    }
    return text;
}

emm_ipc_handle from_hexadecimal(const std::string &text) {
    emm_ipc_handle handle = {};
    for (size_t i = 0; i < sizeof handle; i++) {
        reinterpret_cast<unsigned char *>(&handle)[i] =
            static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    }
    return handle;
}

void shared(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    // Several blocks, so that the memory need not lie where its block begins.
    const std::vector<emm_deviceptr> around = take(hosted, 4, mib);
    const emm_deviceptr ptr = around[2];
    mark(nullptr, ptr, mib, 0x5c);
    EMM_REQUIRE_CUDA(cuStreamSynchronize, nullptr);
    emm_ipc_handle handle = {};
    const emm_status given = emm_get_ipc_handle(hosted.get(), ptr, mib, &handle);
    if (given == EMM_E_NOT_SUPPORTED) {
        throw Skipped(std::string("its memory cannot be shared: ") + emm_last_error()->text);
    }
    must(given, "get_ipc_handle");
    must(emm_trim(hosted.get(), 0, nullptr), "trim");
    const Json job = {{"job", "check-peer"}, {"handle", in_hexadecimal(handle)}, {"size", mib}};
    Child peer("the other process", job, {});
    const Json found = peer.receive();
    const std::string end = peer.finish();
    expect(end.empty(), "the process that opened it {}", end);
    expect(found.at("same").get<bool>(), "another process finds other bytes in it");
    must(emm_release_ipc_handle(hosted.get(), &handle), "release_ipc_handle");
    for (const emm_deviceptr each : around) {
        hosted.free(each, mib);
    }
}

// Nothing handed out meanwhile may lie in `exported`.
void expect_kept(const BareManager &manager, const std::vector<emm_deviceptr> &exported) {
    std::vector<emm_deviceptr> blocks;
    for (size_t i = 0; i < 40; i++) {
        blocks.push_back(manager.alloc(exported_size, either_way(i)));
        for (const emm_deviceptr ptr : exported) {
            expect(blocks.back() + exported_size <= ptr || ptr + exported_size <= blocks.back(),
                   "memory was handed out that is exported: it was freed, and not yet released");
        }
    }
    free_all(manager, blocks, exported_size);
}

// Frees that come before the release. Each block is exported twice, and stays until both exports
// are released.
void freed_exports(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().get_ipc_handle, "it leaves IPC to emm");
    const uint64_t before = held_bytes();
    const BareManager manager(bare);
    const auto give_back = [&] {
        size_t released = 0;
        if (bare.slots().trim) {
            EMM_SLOT(manager, trim, size_t(0), &released);
        }
        run_deferred(EMM_DEFERRED_RUN);
        return held_bytes();
    };
    const uint64_t idle = give_back();
    const std::vector<emm_deviceptr> exported = take(manager, 6, exported_size);
    emm_ipc_handle none = {};
    const emm_status beyond = EMM_SLOT(manager, get_ipc_handle, exported.back(), 4096 * mib, &none);
    expect(beyond < EMM_OK, "it exports 4 GiB of a block of {} bytes", exported_size);
    std::vector<emm_ipc_handle> handles;
    for (int round = 0; round < 2; round++) {
        for (const emm_deviceptr ptr : exported) {
            handles.emplace_back();
            const emm_status given =
                EMM_SLOT(manager, get_ipc_handle, ptr, exported_size, &handles.back());
            if (given == EMM_E_NOT_SUPPORTED) {
                throw Skipped("its memory cannot be shared: " + last_said().text);
            }
            expect(given >= EMM_OK, "get_ipc_handle fails: {} {}", given, last_said().text);
        }
    }
    free_all(manager, exported, exported_size);
    for (size_t i = 0; i < handles.size(); i++) {
        if (i % exported.size() == 0) { // no export is released yet, or each once
            const uint64_t held = give_back();
            expect(held >= before + exported.size() * exported_size,
                   "with {} bytes freed, and exported, the driver has only {} handed out",
                   exported.size() * exported_size, held - before);
            expect_kept(manager, exported);
        }
        EMM_MUST(manager, release_ipc_handle, &handles[i]);
    }
    const uint64_t held = give_back();
    expect(held < idle + 64 * mib,
           "after the last release, and a trim to 0, {} bytes more than before are taken",
           held - idle);
}

void forked(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    const emm_deviceptr ptr = hosted.alloc(mib);
    mark(nullptr, ptr, mib, 0x3c);
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        emm_deviceptr mine = 0;
        const bool refused =
            emm_memalloc(hosted.get(), mib, EMM_STREAM_LEGACY, &mine) == EMM_E_FORKED;
        std::exit(refused ? 0 : 3);
    }
    int status = 0;
    expect(child > 0 && waitpid(child, &status, 0) == child, "the suite cannot fork");
    expect(!WIFSIGNALED(status), "a forked child was ended by signal {}", WTERMSIG(status));
    expect(WEXITSTATUS(status) == 0, "a forked child ended with status {}", WEXITSTATUS(status));
    expect(is_marked(nullptr, ptr, mib, 0x3c), "memory changed when a forked child ended");
    hosted.free(ptr, mib);
}

#if defined(__has_feature)
#define EMM_HAS_FEATURE(name) __has_feature(name)
#else
#define EMM_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    EMM_HAS_FEATURE(address_sanitizer) || EMM_HAS_FEATURE(thread_sanitizer)
constexpr bool has_sanitizer_locks = true; // they stay locked in a child as well
#else
constexpr bool has_sanitizer_locks = false;
#endif

// Waits for the child, for a limited time. Gives waitpid's answer, -1 if the child has not ended.
int fork_once(const Hosted &hosted) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        emm_deviceptr mine = 0;
        std::exit(emm_memalloc(hosted.get(), mib, EMM_STREAM_LEGACY, &mine) != EMM_E_FORKED);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

// Locks that other threads held at the fork stay locked in the child, which must not wait for them
// as it ends. A real driver has exit handlers of its own, which may wait.
void forked_busy(const CheckedPlugin &plugin) {
    constexpr int children = 30;
    if (has_sanitizer_locks) {
        throw Skipped("a sanitizer's own locks stay locked in a child");
    }
    const Hosted hosted(plugin);
    const emm_deviceptr live = hosted.alloc(mib); // this thread has called the plugin, too
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            for (emm_deviceptr ptr = 0; !over; ptr = 0) {
                if (emm_memalloc(hosted.get(), mib, EMM_STREAM_UNORDERED, &ptr) >= EMM_OK) {
                    emm_memfree(hosted.get(), ptr, mib, EMM_STREAM_UNORDERED);
                }
            }
        });
    }
    int status = 0;
    for (int i = 0; i < children && status == 0; i++) {
        status = fork_once(hosted);
    }
    over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    hosted.free(live, mib);
    expect(status != -1, "the suite cannot fork");
    expect(!WIFSIGNALED(status),
           "a child forked while other threads allocate was ended by signal {}", WTERMSIG(status));
    expect(status == 0, "a child forked while other threads allocate ended with status {}",
           WEXITSTATUS(status));
}

// The driver goes first: a program's own exit handlers free afterwards.
struct Left {
    emm_context *context = nullptr;
    std::vector<emm_deviceptr> blocks;
    void *host = nullptr;
};

Left &left() {
    static auto *held = new Left;
    return *held;
}

void free_late() {
    bool good = true;
    for (const emm_deviceptr ptr : left().blocks) {
        good = emm_memfree(left().context, ptr, mib, EMM_STREAM_UNORDERED) >= EMM_OK && good;
    }
    if (left().host) {
        good =
            emm_memhostfree(left().context, left().host, mib, 0, EMM_STREAM_UNORDERED) >= EMM_OK &&
            good;
    }
    if (!good) {
        fmt::print(stderr, "a free at the end of the process failed: {}\n", emm_last_error()->text);
        _exit(3);
    }
}

void leave(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    left().context = hosted.get();
    for (int i = 0; i < 10; i++) {
        left().blocks.push_back(hosted.alloc(mib));
    }
    must(emm_memhostalloc(hosted.get(), mib, 0, &left().host, nullptr), "memhostalloc");
}

void exit_live(const CheckedPlugin &plugin) {
    leave(plugin);
}

void exit_late(const CheckedPlugin &plugin) {
    std::atexit(
        &free_late); // before the plugin is loaded: it then runs after the plugin's handlers
    leave(plugin);
}

} // namespace

Json open_shared(const Json &job) {
    const size_t size = job.at("size").get<size_t>();
    const emm_ipc_handle handle = from_hexadecimal(job.at("handle").get<std::string>());
    enter_device();
    emm_context *context = nullptr;
    require(emm_context_for_device(0, &context), "run");
    emm_memory *memory = nullptr;
    require(emm_memory_open_ipc(context, &handle, &memory), "run");
    auto info = sized<emm_memory_info>();
    require(emm_memory_get_info(memory, &info), "run");
    const bool same = is_marked(nullptr, info.ptr, size, 0x5c);
    require(emm_memory_release(memory), "run");
    return {{"same", same}};
}

std::vector<Case> process_cases() {
    return {
        {"process/shared", "EMM-P-35", "another process sees what is shared", shared},
        {"process/freed-exports", "EMM-P-35",
         "exported memory stays until it is freed and released", freed_exports, on_simulator},
        {"process/forked", "EMM-P-37 EMM-H-10", "a forked child ends without harm", forked},
        {"process/forked-busy", "EMM-P-37 EMM-H-10",
         "a child that is forked while other threads allocate ends", forked_busy, on_simulator},
        {"process/exit", "EMM-P-38", "a process may end with memory live", exit_live},
        {"process/late-free", "EMM-P-38", "a free after the driver has gone is a success",
         exit_late, 0, "late=1"},
    };
}

} // namespace emm::tool::check
