// Behaviour: pinned memory of the pool.
#include "simulation.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/syscall.h>
#include <unistd.h>

using namespace pool_test;

namespace {

// Pinned memory of one simulation. A "kernel" fills a block later, in stream order; a block that
// comes back too early is filled while its new owner has it.
class Pinned {
public:
    explicit Pinned(Simulation &sim, uint32_t flags = 0) : sim_(sim), flags_(flags) {}

    emm_status try_alloc(size_t size, char *&ret_host, emm_deviceptr &ret_device) {
        void *host = nullptr;
        const emm_status status =
            pool().memhostalloc(sim_.manager, size, flags_, &host, &ret_device);
        ret_host = status == EMM_OK ? static_cast<char *>(host) : ret_host;
        return status;
    }
    char *alloc(size_t size) {
        char *host = nullptr;
        emm_deviceptr device = 0;
        INFO(last_failure().text);
        REQUIRE(try_alloc(size, host, device) == EMM_OK);
        CHECK((device != 0) == ((flags_ & EMM_HOST_MAPPED) != 0));
        return host;
    }
    emm_status free(char *host, CUstream stream, size_t size = 0) {
        return pool().memhostfree(sim_.manager, host, size, flags_, stream);
    }

    // Enqueues a kernel that writes to a byte.
    static void fill_later(char *host, CUstream stream) {
        const simcuda_range range = {reinterpret_cast<uintptr_t>(host), 1, 1, 0};
        const auto fill = [](void *byte) { *static_cast<char *>(byte) = 'k'; };
        REQUIRE(cuda().launch(stream, fill, host, &range, 1) == CUDA_SUCCESS);
    }

private:
    Simulation &sim_;
    const uint32_t flags_;
};

} // namespace

TEST_CASE("pinned memory comes from the driver once, whatever its size") {
    Simulation sim;
    Pinned pinned(sim);
    const CUstream stream = sim.stream();
    for (const size_t size : {size_t(1), 4 * KiB, 1 * MiB, 32 * MiB, 100 * MiB}) {
        uint64_t calls = 0;
        for (int i = 0; i < 200; i++) {
            calls = i == 20 ? cuda().call_count("cuMemHostAlloc") : calls;
            char *host = pinned.alloc(size);
            host[0] = host[size - 1] = 1;
            Pinned::fill_later(host, stream);
            REQUIRE(pinned.free(host, stream, size) == EMM_OK);
            cuda().cuStreamSynchronize(stream);
        }
        CHECK(cuda().call_count("cuMemHostAlloc") == calls);
    }
    CHECK(sim.stats().host_live_bytes == 0);
    CHECK(sim.stats().host_reserved_bytes == Simulation::host_bytes());
    const uint64_t held = Simulation::host_bytes(), released = sim.trim();
    synchronize(sim); // the events that the first trim has left
    CHECK(released + sim.trim() == held);
    CHECK(Simulation::host_bytes() == 0);
}

TEST_CASE("pinned memory grows after many questions, and again after as many") {
    Simulation sim;
    Pinned pinned(sim);
    const CUstream stream = sim.stream();
    const auto growths = [] { return cuda().call_count("cuMemHostAlloc"); };
    const auto questions = [] { return cuda().call_count("cuStreamQuery"); };
    char *host = pinned.alloc(4 * KiB);
    uint64_t asked[3] = {questions()};
    for (int round = 1; round <= 2; round++) {
        for (size_t i = 1; i < 2 * MiB / (4 * KiB); i++) { // all pinned memory is in use then
            pinned.alloc(4 * KiB);
        }
        for (const uint64_t before = growths(); growths() == before;) {
            REQUIRE(pinned.free(host, stream) == EMM_OK);
            cuda().cuStreamSynchronize(stream);
            host = pinned.alloc(4 * KiB);
        }
        asked[round] = questions();
    }
    CHECK(asked[1] - asked[0] > 1000);
    CHECK(asked[2] - asked[1] == asked[1] - asked[0]);
}

TEST_CASE("pinned memory is not handed to the CPU before the device is done with it") {
    for (const uint32_t flags :
         {0u, EMM_HOST_MAPPED, EMM_HOST_PORTABLE | EMM_HOST_WRITE_COMBINED}) {
        Simulation sim("host_max=96MiB");
        Pinned pinned(sim, flags);
        const CUstream streams[] = {sim.stream(), sim.stream(), sim.stream(false), legacy};
        std::mt19937 random{flags};
        std::vector<std::pair<char *, CUstream>> live;
        for (int i = 0; i < 3000; i++) {
            const size_t size = 1 + random() % (i % 8 ? 64 * KiB : 3 * MiB);
            char *host = pinned.alloc(size);
            *host = 'c'; // at once, by the CPU
            live.emplace_back(host, streams[random() % 4]);
            if (live.size() > 20) {
                std::swap(live[random() % live.size()], live.back());
                const auto [victim, stream] = live.back();
                live.pop_back();
                REQUIRE(*victim == 'c');
                Pinned::fill_later(victim, stream);
                REQUIRE(pinned.free(victim, random() % 4 ? stream : unordered) == EMM_OK);
            }
        }
        synchronize(sim);
        for (const auto &[host, stream] : live) {
            REQUIRE(*host == 'c');
            CHECK(pinned.free(host, stream) == EMM_OK);
        }
    }
}

TEST_CASE("portable memory freed with no stream waits for every context") {
    Simulation here, there;
    Pinned pinned(here, EMM_HOST_PORTABLE);
    const CUstream far = there.stream(false);
    for (int i = 0; i < 300; i++) {
        char *host = pinned.alloc(1 * MiB);
        *host = 'c';
        cuda().cuCtxPushCurrent(there.context);
        Pinned::fill_later(host, far);
        CUcontext popped = nullptr;
        cuda().cuCtxPopCurrent(&popped);
        pinned.free(host, unordered);
        char *next = pinned.alloc(1 * MiB);
        *next = 'c';
        if (i % 10 == 0) {
            synchronize(there);
        }
        REQUIRE(*next == 'c');
        pinned.free(next, unordered);
    }
    synchronize(there);
    pinned.free(pinned.alloc(1 * MiB), unordered);
    CHECK(here.stats().host_reserved_bytes < 300 * MiB);
}

TEST_CASE("portable memory waits for a context whose manager is reset or destroyed meanwhile") {
    for (const bool reset : {true, false}) {
        for (const bool freed_first : {true, false}) {
            Simulation here, there;
            Pinned pinned(here, EMM_HOST_PORTABLE);
            const CUstream far = there.stream(false);
            std::vector<char *> blocks;
            for (int i = 0; i < 4; i++) {
                blocks.push_back(pinned.alloc(1 * MiB));
                cuda().cuCtxPushCurrent(there.context);
                Pinned::fill_later(blocks.back(), far);
                CUcontext popped = nullptr;
                cuda().cuCtxPopCurrent(&popped);
            }
            const auto free_all = [&] {
                for (char *host : blocks) {
                    CHECK(pinned.free(host, unordered) == EMM_OK);
                }
            };
            if (freed_first) {
                free_all();
                pinned.alloc(2 * MiB); // looks for complete frees, and finds none
            }
            if (reset) {
                CHECK(pool().reset(there.manager) == EMM_OK);
            } else {
                there.close();
            }
            if (!freed_first) {
                free_all();
            }
            for (int i = 0; i < 60; i++) {
                blocks.push_back(pinned.alloc(1 * MiB));
                *blocks.back() = 'c';
            }
            synchronize(there);
            for (size_t i = 4; i < blocks.size(); i++) {
                CHECK(*blocks[i] == 'c');
            }
        }
    }
}

// A GPU's driver crashes on a second query once the handle's memory has another use.
TEST_CASE("the driver is asked once about another manager's context that has died") {
    if (const char *settings = getenv("EMM_SIM"); settings && strstr(settings, "progress=random")) {
        return; // the own context is asked about more or less often
    }
    const auto questions = [](bool has_other) {
        Simulation here;
        const auto there = has_other ? std::make_unique<Simulation>() : nullptr;
        Pinned pinned(here, EMM_HOST_PORTABLE);
        const auto look = [&] {
            for (int i = 0; i < 8; i++) {
                CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
                pinned.alloc(2 * MiB);
            }
        };
        look();
        if (there) {
            CHECK(cuda().cuCtxDestroy(there->context) == CUDA_SUCCESS);
        }
        const uint64_t before = cuda().call_count("cuCtxGetId");
        look();
        return cuda().call_count("cuCtxGetId") - before;
    };
    CHECK(questions(true) == questions(false) + 1);
}

TEST_CASE("portable memory waits for a context whose manager could not wait for its work") {
    Simulation here, there;
    Pinned pinned(here, EMM_HOST_PORTABLE);
    const CUstream far = there.stream(false);
    char *const used = pinned.alloc(1 * MiB);
    cuda().cuCtxPushCurrent(there.context);
    Pinned::fill_later(used, far);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    CHECK(pinned.free(used, unordered) == EMM_OK);
    pinned.alloc(2 * MiB); // looks for complete frees, and finds none
    REQUIRE(cuda().fail("cuMemAlloc@1+") == CUDA_SUCCESS);
    REQUIRE(cuda().fail("cuCtxSynchronize@1+") == CUDA_SUCCESS);
    there.close();
    cuda().fail("");
    std::vector<char *> blocks;
    for (int i = 0; i < 60; i++) {
        blocks.push_back(pinned.alloc(1 * MiB));
        *blocks.back() = 'c';
    }
    synchronize(there);
    for (char *block : blocks) {
        CHECK(*block == 'c');
        CHECK(pinned.free(block, unordered) == EMM_OK);
    }
    here.trim(); // waits for that work
    synchronize(here);
    here.trim();
    CHECK(here.stats().host_reserved_bytes <= 16 * MiB);
}

TEST_CASE("portable memory comes back although another context has died unannounced") {
    Simulation here, there;
    Pinned pinned(here, EMM_HOST_PORTABLE);
    there.free(there.alloc(MiB, legacy), legacy);
    cuda().cuCtxDestroy(there.context);
    for (int i = 0; i < 200; i++) {
        CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
    }
    CHECK(here.stats().host_reserved_bytes <= 64 * MiB);
    REQUIRE(cuda().cuCtxCreate(&there.context, 0, 0) == CUDA_SUCCESS); // for the test to destroy
}

TEST_CASE("portable memory comes back although another context is lost") {
    Simulation here, there;
    Pinned pinned(here, EMM_HOST_PORTABLE);
    const CUstream far = there.stream();
    const CUdeviceptr used = there.alloc(MiB, far);
    cuda().cuCtxPushCurrent(there.context);
    there.touch(used, MiB, far); // a mark of this work is pending when the context is lost
    CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
    pinned.alloc(2 * MiB);
    cuda().fail("cuMemAlloc@1:719");
    CUdeviceptr none = 0;
    CHECK(there.try_alloc(64 * MiB, far, none) == EMM_E_DEVICE_LOST);
    cuda().fail("");
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    for (int i = 0; i < 200; i++) {
        CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
    }
    CHECK(here.stats().host_reserved_bytes <= 64 * MiB);
}

TEST_CASE("portable memory comes back although another context's manager ended in a capture") {
    Simulation here, there;
    Pinned pinned(here, EMM_HOST_PORTABLE);
    const CUstream captured = there.stream();
    CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
    there.notice(captured, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    there.close();
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(captured, &graph) == CUDA_SUCCESS);
    cuda().cuGraphDestroy(graph);
    for (int i = 0; i < 200; i++) {
        CHECK(pinned.free(pinned.alloc(1 * MiB), unordered) == EMM_OK);
    }
    CHECK(here.stats().host_reserved_bytes <= 64 * MiB);
}

TEST_CASE("flags have pools of their own, and a free has to name them") {
    Simulation sim;
    Pinned plain(sim), combined(sim, EMM_HOST_WRITE_COMBINED);
    char *a = plain.alloc(4 * KiB), *b = combined.alloc(4 * KiB);
    CHECK(plain.free(b, legacy) == EMM_E_NOT_OWNED);
    CHECK(combined.free(a, legacy) == EMM_E_NOT_OWNED);
    CHECK(sim.free(reinterpret_cast<uintptr_t>(a), legacy) == EMM_E_NOT_OWNED);
    CHECK(plain.free(a, legacy, 4096 + 1) == EMM_E_INVALID_VALUE);
    CHECK(plain.free(a + 512, legacy) == EMM_E_NOT_OWNED);
    CHECK(plain.free(a, legacy, 4096) == EMM_OK);
    CHECK(plain.free(a, legacy, 4096) == EMM_E_NOT_OWNED);
    CHECK(combined.free(b, unordered) == EMM_OK);
    void *none = nullptr;
    emm_deviceptr device = 0;
    CHECK(pool().memhostalloc(sim.manager, 1, 64, &none, &device) == EMM_E_NOT_SUPPORTED);
}

TEST_CASE("host_max is never exceeded, and idle memory of other sizes makes room") {
    Simulation sim("host_max=64MiB");
    Pinned plain(sim), mapped(sim, EMM_HOST_MAPPED);
    std::vector<char *> blocks;
    for (int i = 0; i < 15; i++) {
        blocks.push_back(plain.alloc(4 * MiB));
    }
    char *none = nullptr;
    emm_deviceptr device = 0;
    CHECK(mapped.try_alloc(8 * MiB, none, device) == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("62914560 bytes of pinned memory live") &&
                                        ContainsSubstring("host_max 67108864"));
    CHECK(none == nullptr);
    for (char *block : blocks) {
        Pinned::fill_later(block, legacy);
        plain.free(block, unordered);
    }
    mapped.free(mapped.alloc(60 * MiB), legacy);
    CHECK(Simulation::host_bytes() <= 64 * MiB);
    sim.trim();
    synchronize(sim);
    sim.trim();
    CHECK(Simulation::host_bytes() == 0);
}

TEST_CASE("pinned memory used by a graph stays the graph's") {
    Simulation sim;
    Pinned pinned(sim);
    const CUstream stream = sim.stream();
    char *host = pinned.alloc(64 * KiB);
    cuda().cuCtxPushCurrent(sim.context);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    cuda().cuMemsetD8Async(reinterpret_cast<uintptr_t>(host), 7, 16, stream);
    char *more = pinned.alloc(1 * MiB); // the capture survives this
    CHECK(pinned.free(host, stream) == EMM_OK);
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    CHECK(pinned.free(more, stream) == EMM_OK);
    for (int i = 0; i < 100; i++) {
        char *other = pinned.alloc(64 * KiB);
        CHECK(other != host);
        pinned.free(other, stream);
    }
    cuda().cuGraphDestroy(graph);
    synchronize(sim);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

TEST_CASE("a reset takes pinned memory along, also while it is in use") {
    Simulation sim;
    Pinned pinned(sim, EMM_HOST_MAPPED);
    char *host = pinned.alloc(3 * MiB);
    pinned.free(pinned.alloc(5 * MiB), legacy);
    pinned.free(pinned.alloc(5 * KiB), unordered);
    REQUIRE(pool().reset(sim.manager) == EMM_OK);
    CHECK(Simulation::host_bytes() == 0);
    CHECK(pinned.free(host, legacy) == EMM_E_NOT_OWNED);
    pinned.free(pinned.alloc(5 * KiB), legacy);
}

TEST_CASE("a driver that fails with pinned memory once costs nothing but that call") {
    for (const char *fault : {"cuMemHostAlloc@1", "cuMemHostGetDevicePointer@1", "cuStreamQuery@1",
                              "cuEventRecord@1", "cuCtxRecordEvent@1", "cuCtxPushCurrent@1"}) {
        Simulation sim("host_max=16MiB");
        Pinned pinned(sim, EMM_HOST_MAPPED);
        const CUstream stream = sim.stream();
        cuda().fail(fault);
        for (int i = 0; i < 40; i++) {
            char *host = nullptr;
            emm_deviceptr device = 0;
            if (pinned.try_alloc(7 * MiB, host, device) == EMM_OK) {
                CHECK(pinned.free(host, i % 3 ? stream : unordered) == EMM_OK);
            }
        }
        cuda().fail("");
        INFO(fault);
        pinned.free(pinned.alloc(7 * MiB), stream);
    }
    CHECK(Simulation::host_bytes() == 0);
}

namespace {

// The calling thread's memory policy.
struct Policy {
    int mode = -1;
    unsigned long nodes[16] = {};

    static Policy now() {
        Policy policy;
        syscall(SYS_get_mempolicy, &policy.mode, policy.nodes, 1024, nullptr, 0);
        return policy;
    }
    // Whether the system lets a thread set a policy.
    static bool may_be_set() { return syscall(SYS_set_mempolicy, 0, nullptr, 0) == 0; }
};

constexpr int default_policy = 0, prefer_nodes = 1; // MPOL_DEFAULT, MPOL_PREFERRED

Policy while_pinning;
int warnings = 0;
decltype(&::cuMemHostAlloc) real_host_alloc = nullptr;

CUresult watched_host_alloc(void **ret_host, size_t size, unsigned flags) {
    while_pinning = Policy::now();
    return real_host_alloc(ret_host, size, flags);
}

emm_function watched_entry(const char *name, int32_t version) {
    const emm_function found = host().driver(name, version);
    if (strcmp(name, "cuMemHostAlloc") != 0) {
        return found;
    }
    real_host_alloc = reinterpret_cast<decltype(real_host_alloc)>(found);
    return reinterpret_cast<emm_function>(&watched_host_alloc);
}

// While pinned memory is taken from the driver.
int mode_with(const char *options) {
    emm_host watching = host();
    watching.driver = watched_entry;
    watching.log = [](int32_t level, const char *text) {
        warnings += level == EMM_LOG_WARN && strstr(text, "host_node=nearest has no effect");
    };
    Simulation sim(options, watching);
    Pinned pinned(sim);
    pinned.free(pinned.alloc(5 * MiB), legacy);
    return while_pinning.mode;
}

} // namespace

TEST_CASE("host_node=nearest prefers the device's node of the host while memory is pinned, and no "
          "longer") {
    warnings = 0;
    CHECK(mode_with("") == default_policy);
    if (Policy::may_be_set()) {
        CHECK(mode_with("host_node=nearest") == prefer_nodes);
        CHECK(while_pinning.nodes[0] == 1); // the simulated host has one node
        CHECK(warnings == 0);
    } else {
        CHECK(mode_with("host_node=nearest") == default_policy);
        CHECK(warnings == 1);
    }
    CHECK(Policy::now().mode == default_policy);
}

TEST_CASE("a mark that the driver refuses is tried again after 64 more frees at the earliest") {
    Simulation sim;
    Pinned pinned(sim, EMM_HOST_PORTABLE);
    std::vector<char *> blocks(16384);
    for (char *&block : blocks) {
        block = pinned.alloc(512);
    }
    const uint64_t before = cuda().call_count("cuCtxRecordEvent");
    cuda().fail("cuCtxRecordEvent@1+:2");
    for (char *const block : blocks) {
        REQUIRE(pinned.free(block, unordered) == EMM_OK);
    }
    const uint64_t tries = cuda().call_count("cuCtxRecordEvent") - before;
    cuda().fail("");
    CHECK(tries > 1);
    CHECK(tries <= blocks.size() / 64);
}
