// Behaviour: a sandbox that begins after the start takes membarrier away, which threads without
// locks rely on.
#include "../../parts/sandbox.h"
#include "gpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

extern char **environ;

namespace {

constexpr int cannot_be_had = 77;
constexpr auto a_while = std::chrono::seconds(3);

// Runs a hidden test case of this program in a process of its own. Gives the number of `words` in
// its log.
int run_alone(const char *name, const std::string &words) {
    char file[] = "/tmp/emm-sandbox-XXXXXX";
    const int descriptor = mkstemp(file);
    REQUIRE(descriptor >= 0);
    const std::string setting = std::string("EMM_LOG=warn:") + file;
    char alone[] = "EMM_TEST_ALONE=1";
    std::vector<char *> environment = {const_cast<char *>(setting.c_str()), alone};
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, "EMM_LOG=", 8) != 0) {
            environment.push_back(*entry);
        }
    }
    environment.push_back(nullptr);
    const std::array<const char *, 3> arguments = {"/proc/self/exe", name, nullptr};
    pid_t child = 0;
    REQUIRE(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr,
                        const_cast<char *const *>(arguments.data()), environment.data()) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    std::ifstream log(file);
    int lines = 0;
    for (std::string line; std::getline(log, line);) {
        lines += line.find(words) != std::string::npos ? 1 : 0;
    }
    close(descriptor);
    unlink(file);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == cannot_be_had) {
        WARN("skipped: a seccomp filter cannot be installed here");
        return -1;
    }
    CHECK(WEXITSTATUS(status) == 0);
    return lines;
}

// A filter stays until the process ends: a hidden test case does nothing if other cases follow in
// its process.
bool is_alone() {
    return std::getenv("EMM_TEST_ALONE") != nullptr;
}

// The live addresses, by their lower bits.
class Lent {
public:
    void begin(emm_deviceptr ptr) { twice_ += place(ptr).exchange(true) ? 1 : 0; }
    void end(emm_deviceptr ptr) { place(ptr).store(false); }
    int twice() const { return twice_; }

private:
    std::atomic<bool> &place(emm_deviceptr ptr) { return places_[ptr / 256 % places_.size()]; }
    std::array<std::atomic<bool>, size_t(1) << 20> places_{};
    std::atomic<int> twice_{0};
};

} // namespace

TEST_CASE("threads allocate on streams of their own after membarrier is gone", "[.alone]") {
    if (!is_alone()) {
        return;
    }
    const Gpu gpu;
    static Lent lent;
    std::atomic<bool> over{false};
    std::atomic<int> failed{0};
    const auto traffic = [&](CUstream stream) { // without assertions, which are one thread's
        failed += CU(cuCtxSetCurrent)(gpu.cuda()) == CUDA_SUCCESS ? 0 : 1;
        emm_stream_register(gpu.emm(), stream);
        while (!over) {
            std::array<emm_deviceptr, 200> blocks = {};
            const auto allocate = [&](emm_deviceptr &ptr) {
                failed += emm_memalloc(gpu.emm(), 256, stream, &ptr) == EMM_OK ? 0 : 1;
            };
            const auto free = [&](emm_deviceptr ptr) {
                failed += emm_memfree(gpu.emm(), ptr, 256, stream) == EMM_OK ? 0 : 1;
            };
            std::for_each(blocks.begin(), blocks.end(), allocate);
            for (int i = 0; i < 20; i++) { // with nothing of ours between that orders stores
                for (emm_deviceptr &ptr : blocks) {
                    free(ptr);
                    allocate(ptr);
                }
            }
            for (const emm_deviceptr ptr : blocks) {
                lent.begin(ptr);
            }
            for (const emm_deviceptr ptr : blocks) {
                lent.end(ptr);
            }
            std::for_each(blocks.begin(), blocks.end(), free);
        }
        emm_stream_retire(gpu.emm(), stream);
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back(traffic, gpu.make_stream());
    }
    gpu.free(gpu.allocate(256), 256);
    const bool forbidden = forbid_membarrier();
    const auto end = std::chrono::steady_clock::now() + a_while;
    while (forbidden && std::chrono::steady_clock::now() < end) {
        emm_trim(gpu.emm(), SIZE_MAX, nullptr); // empties magazines, and keeps the memory
    }
    over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (!forbidden) {
        std::_Exit(cannot_be_had);
    }
    CHECK(lent.twice() == 0);
    CHECK(failed == 0);
    CHECK(gpu.stats().live_count == 0);
}

TEST_CASE("no address is live twice when membarrier fails later, and the log says so once") {
    const int lines = run_alone("threads allocate on streams of their own after membarrier is gone",
                                "pool: the kernel now refuses membarrier");
    const Gpu gpu;
    CHECK((lines == (plugin_name() == "pool" ? 1 : 0) || lines < 0));
}

TEST_CASE("threads release handles beside resets after membarrier is gone", "[.alone]") {
    if (!is_alone()) {
        return;
    }
    const Gpu gpu;
    std::atomic<bool> over{false};
    std::atomic<int> failed{0}, under_way{0};
    const auto traffic = [&] {
        bool first = true;
        while (!over) {
            emm_memory *memory = nullptr;
            if (emm_memory_alloc(gpu.emm(), 4096, EMM_STREAM_UNORDERED, &memory) == EMM_OK) {
                failed += emm_memory_release(memory) == EMM_OK ? 0 : 1;
                under_way += std::exchange(first, false) ? 1 : 0;
            }
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back(traffic);
    }
    while (under_way < 2) { // both go on with plain stores
        std::this_thread::yield();
    }
    const bool forbidden = forbid_membarrier();
    const auto end = std::chrono::steady_clock::now() + a_while;
    while (forbidden && std::chrono::steady_clock::now() < end) {
        CHECK(emm_context_reset(gpu.emm()) == EMM_OK);
    }
    over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    if (!forbidden) {
        std::_Exit(cannot_be_had);
    }
    CHECK(failed == 0);
}

TEST_CASE(
    "handles are released beside resets when membarrier fails later, and the log says so once") {
    const int lines = run_alone("threads release handles beside resets after membarrier is gone",
                                "[warning] the kernel now refuses membarrier");
    CHECK((lines == 1 || lines < 0));
}
