// Behaviour: the memory that threads keep for themselves, and its way back.
#include "simulation.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <linux/membarrier.h>
#include <mutex>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace pool_test;

namespace {

// A thread that carries out tasks in turn, and keeps its magazines meanwhile.
class Helper {
public:
    Helper() : thread_([this] { live(); }) {}
    ~Helper() {
        act(nullptr);
        thread_.join();
    }
    void act(std::function<void()> action) {
        std::unique_lock lock(mutex_);
        action_ = std::move(action);
        told_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !told_; });
    }

private:
    void live() {
        std::unique_lock lock(mutex_);
        for (bool more = true; more;) {
            changed_.wait(lock, [this] { return told_; });
            more = bool(action_);
            if (more) {
                action_();
            }
            told_ = false;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> action_;
    bool told_ = false;
    std::thread thread_;
};

// Leaves free memory of many sizes with the calling thread.
void fill_and_free(Simulation &sim, CUstream stream) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 300; i++) {
        blocks.push_back(sim.alloc(1 + size_t(i % 60) * 1000, stream));
        sim.touch(blocks.back(), 1, stream == unordered ? legacy : stream);
    }
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, stream);
    }
}

} // namespace

TEST_CASE("ten thousand short-lived threads leave reserved memory flat") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const CUstream kinds[] = {stream, legacy, unordered, per_thread};
    uint64_t early = 0;
    for (int i = 0; i < 10000; i++) {
        std::thread([&] {
            const CUstream kind = kinds[i % 4];
            const CUdeviceptr small = sim.alloc(3000, kind), large = sim.alloc(300 * KiB, kind);
            sim.free(small, kind);
            sim.free(large, kind);
        }).join();
        early = i == 2000 ? sim.held() : early;
    }
    synchronize(sim);
    CHECK(sim.held() <= early + 16 * MiB); // 8,000 threads would strand 1,200 MiB and more
    sim.free(sim.alloc(100, unordered), unordered);
    sim.trim();
    CHECK(sim.stats().live_count == 0);
}

TEST_CASE("a thread that ends strands nothing") {
    Simulation sim;
    for (const CUstream stream : {sim.stream(), legacy}) {
        std::thread([&] { fill_and_free(sim, stream); }).join();
        synchronize(sim);
        const uint64_t held = sim.held();
        CHECK(held > 0);
        CHECK(sim.trim() == held);
    }
}

TEST_CASE("a trim reaches what other threads keep for themselves") {
    Simulation sim;
    Helper one, two;
    for (const CUstream stream : {sim.stream(), legacy}) {
        one.act([&] { fill_and_free(sim, stream); });
        two.act([&] { fill_and_free(sim, stream); });
        synchronize(sim);
        const uint64_t held = sim.held();
        CHECK(held > 0);
        CHECK(sim.trim() == held);
        CHECK(sim.stats().cached_bytes == 0);
    }
}

TEST_CASE("exhaustion reaches what other threads keep for themselves") {
    for (const CUstream keeper : {legacy, unordered}) {
        Simulation sim("max=4MiB");
        const CUstream other = sim.stream();
        Helper helper;
        helper.act([&] {
            const CUdeviceptr ptr = sim.alloc(2 * MiB, legacy);
            sim.touch(ptr, 2 * MiB, legacy);
            sim.free(ptr, keeper);
            const CUdeviceptr small = sim.alloc(512, keeper);
            sim.touch(small, 512, legacy);
            sim.free(small, keeper);
        });
        const CUdeviceptr all = sim.alloc(4 * MiB, other);
        sim.touch(all, 4 * MiB, other);
        sim.free(all, other);
    }
}

TEST_CASE("a stream's retirement empties every thread's magazine for it") {
    Simulation sim;
    const CUstream first = sim.stream();
    Helper helper;
    helper.act([&] { fill_and_free(sim, first); });
    fill_and_free(sim, first);
    sim.destroy(first);
    synchronize(sim);
    const CUstream second = sim.stream(); // very likely with the handle of the first
    const uint64_t held = sim.held();
    helper.act([&] {
        const CUdeviceptr ptr = sim.alloc(3000, second);
        sim.touch(ptr, 3000, second);
        sim.free(ptr, second);
    });
    CHECK(sim.held() == held);
    sim.destroy(second);
    synchronize(sim);
    CHECK(sim.trim() == held);
}

TEST_CASE("blocks that another thread frees come back to the first, and count once") {
    Simulation sim;
    const CUstream stream = sim.stream();
    Helper helper;
    std::vector<CUdeviceptr> blocks;
    uint64_t early = 0;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 100; i++) {
            blocks.push_back(sim.alloc(2000, stream));
            sim.touch(blocks.back(), 2000, stream);
        }
        CHECK(sim.stats().live_bytes == 100 * 2000);
        helper.act([&] {
            for (const CUdeviceptr ptr : blocks) {
                sim.free(ptr, stream, 2000);
            }
        });
        blocks.clear();
        const emm_stats stats = sim.stats();
        CHECK(stats.live_count == 0);
        CHECK(stats.live_bytes == 0);
        CHECK(stats.reserved_bytes == stats.pending_bytes + stats.cached_bytes);
        early = round == 10 ? sim.held() : early;
    }
    CHECK(sim.held() == early);
    CHECK(sim.stats().allocations == 200 * 100);
    CHECK(sim.stats().frees == 200 * 100);
}

TEST_CASE("peaks begin anew with what each thread has live in its magazines") {
    Simulation sim;
    const CUstream stream = sim.stream();
    Helper helper;
    std::vector<CUdeviceptr> kept;
    helper.act([&] {
        fill_and_free(sim, stream);
        kept.push_back(sim.alloc(2000, stream));
    });
    fill_and_free(sim, stream);
    kept.push_back(sim.alloc(3000, stream));
    CHECK(sim.stats().peak_live_bytes > 5000);
    REQUIRE(pool().reset_peaks(sim.manager) == EMM_OK);
    CHECK(sim.stats().peak_live_bytes == 5000);
    helper.act([&] { kept.push_back(sim.alloc(2000, stream)); });
    CHECK(sim.stats().peak_live_bytes == 7000);
    for (const CUdeviceptr ptr : kept) {
        sim.free(ptr, stream);
    }
    CHECK(sim.stats().peak_live_bytes == 7000);
    CHECK(sim.stats().live_bytes == 0);
}

TEST_CASE("peaks begin anew while threads allocate and free") {
    Simulation sim;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&] {
            while (!is_over) {
                sim.free(sim.alloc(2000, legacy), legacy);
            }
        });
    }
    for (int i = 0; i < 300; i++) {
        CHECK(pool().reset_peaks(sim.manager) == EMM_OK);
        CHECK(sim.stats().peak_live_bytes <= 3 * 2000);
    }
    is_over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    REQUIRE(pool().reset_peaks(sim.manager) == EMM_OK);
    CHECK(sim.stats().peak_live_bytes == 0);
}

TEST_CASE("peaks begin anew with what is paused") {
    Simulation sim("growth=vmm");
    const CUdeviceptr live = sim.alloc(12 * MiB, legacy);
    sim.free(sim.alloc(20 * MiB, legacy), legacy);
    size_t released = 0;
    REQUIRE(pool().pause(sim.manager, EMM_PAUSE_KEEP, &released) == EMM_OK);
    REQUIRE(pool().reset_peaks(sim.manager) == EMM_OK);
    CHECK(sim.stats().peak_live_bytes == 12 * MiB);
    CHECK(sim.stats().peak_reserved_bytes == sim.stats().paused_bytes);
    REQUIRE(pool().resume(sim.manager, 0) == EMM_OK);
    CHECK(sim.stats().peak_reserved_bytes == sim.stats().reserved_bytes);
    sim.free(live, legacy);
}

TEST_CASE("what a magazine holds cannot be freed again") {
    Simulation sim;
    const CUstream stream = sim.stream();
    Helper helper;
    for (const size_t size : {KiB, 20 * KiB, 500 * KiB}) {
        for (const CUstream kind : {stream, unordered}) {
            for (int i = 0; i < 3; i++) { // through the slow path first, then the fast one
                const CUdeviceptr ptr = sim.alloc(size, kind);
                CHECK(sim.free(ptr, kind, size + 1) == EMM_E_INVALID_VALUE);
                CHECK(sim.free(ptr, kind, size) == EMM_OK);
                CHECK(sim.free(ptr, kind, size) == EMM_E_NOT_OWNED);
                helper.act([&] { CHECK(sim.free(ptr, legacy) == EMM_E_NOT_OWNED); });
            }
        }
    }
}

TEST_CASE("a reset empties every thread's magazines, and they serve on") {
    Simulation sim;
    const CUstream stream = sim.stream();
    Helper helper;
    for (int i = 0; i < 3; i++) {
        helper.act([&] { fill_and_free(sim, stream); });
        fill_and_free(sim, stream);
        REQUIRE(pool().reset(sim.manager) == EMM_OK);
        CHECK(sim.held() == 0);
        CHECK(sim.stats().cached_bytes == 0);
        CHECK(sim.stats().live_count == 0);
    }
}

TEST_CASE("a thread outlives the pool whose magazines it has") {
    Helper helper;
    for (int i = 0; i < 5; i++) {
        Simulation sim;
        const CUstream stream = sim.stream();
        helper.act([&] { fill_and_free(sim, stream); });
    }
}

TEST_CASE(
    "a pool registers for the kernel's barrier, without which its locks are not the plain ones") {
    const Simulation sim;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
    }
}

TEST_CASE("a magazine is of no use while its stream captures") {
    Simulation sim;
    const CUstream stream = sim.stream();
    Helper helper;
    CUdeviceptr before = 0;
    helper.act([&] {
        before = sim.alloc(2000, stream);
        sim.touch(before, 2000, stream);
        sim.free(before, stream);
    });
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    helper.act([&] {
        const CUdeviceptr inside = sim.alloc(2000, stream);
        CHECK(inside != before);
        sim.free(inside, stream);
        CHECK(sim.stats().pending_bytes >= 2000);
    });
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    cuda().cuGraphDestroy(graph);
}

namespace {

std::atomic<bool> is_inside{false}, may_go_on{false};

void dwell() {
    const bool is_first = !is_inside.exchange(true);
    while (is_first && !may_go_on) {
        std::this_thread::yield();
    }
}

} // namespace

TEST_CASE("a slow cuMemAlloc stalls only its caller") {
    Simulation sim;
    const CUstream own = sim.stream(), other = sim.stream();
    sim.free(sim.alloc(3 * MiB, own), own);
    sim.free(sim.alloc(3000, own), own);
    is_inside = may_go_on = false;
    before_mem_alloc = dwell;
    std::thread slow([&] { sim.free(sim.alloc(64 * MiB, other), other); });
    while (!is_inside) {
        std::this_thread::yield();
    }
    for (int i = 0; i < 100; i++) { // through the pool's lock, and through a magazine
        sim.free(sim.alloc(3 * MiB, own), own);
        sim.free(sim.alloc(3000, own), own);
    }
    before_mem_alloc = nullptr;
    may_go_on = true;
    slow.join();
    CHECK(sim.stats().live_count == 0);
}

TEST_CASE("pinned memory that other threads keep is fetched before there is more of it") {
    Simulation sim;
    const CUstream streams[] = {sim.stream(), sim.stream(false), unordered, legacy};
    const auto pin = [&](size_t size) {
        void *host = nullptr;
        emm_deviceptr device = 0;
        REQUIRE(pool().memhostalloc(sim.manager, size, 0, &host, &device) == EMM_OK);
        return host;
    };
    const auto unpin = [&](void *host, CUstream stream) {
        return pool().memhostfree(sim.manager, host, 0, 0, stream);
    };
    Helper helpers[3];
    for (const size_t size : {4 * KiB, 200 * KiB, 1 * MiB, 5 * MiB}) {
        INFO(size);
        std::vector<void *> blocks;
        uint64_t reserved = 0;
        for (int round = 0; round < 12; round++) {
            Helper &taker = helpers[round % 3], &giver = helpers[(round + 1) % 3];
            taker.act([&] {
                for (int i = 0; i < 40; i++) {
                    blocks.push_back(pin(size));
                    *static_cast<char *>(blocks.back()) = 'c';
                }
            });
            giver.act([&] {
                for (size_t i = 0; i < blocks.size(); i++) {
                    CHECK(unpin(blocks[i], streams[i % 4]) == EMM_OK);
                }
            });
            CHECK(unpin(blocks[size_t(round)], legacy) == EMM_E_NOT_OWNED);
            blocks.clear();
            synchronize(sim);
            CHECK(sim.stats().host_live_bytes == 0);
            reserved = round == 2 ? sim.stats().host_reserved_bytes : reserved;
        }
        CHECK(sim.stats().host_reserved_bytes <= reserved + 8 * 8 * MiB); // to be asked less often
    }
    sim.trim();
    synchronize(sim); // the events that the first trim has left
    sim.trim();
    CHECK(sim.stats().host_reserved_bytes == 0);
}

TEST_CASE("pinned memory that a thread keeps goes back when it ends, or its stream does") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const auto pair = [&](size_t size) {
        void *host = nullptr;
        emm_deviceptr device = 0;
        REQUIRE(pool().memhostalloc(sim.manager, size, 0, &host, &device) == EMM_OK);
        REQUIRE(pool().memhostfree(sim.manager, host, size, 0, stream) == EMM_OK);
    };
    uint64_t reserved = 0;
    for (int i = 0; i < 2000; i++) {
        std::thread([&] {
            for (int k = 0; k < 5; k++) {
                pair(32 * KiB);
            }
        }).join();
        synchronize(sim);
        reserved = i == 100 ? sim.stats().host_reserved_bytes : reserved;
    }
    CHECK(sim.stats().host_reserved_bytes == reserved);
    pair(32 * KiB);
    sim.destroy(stream);
    synchronize(sim);
    sim.trim();
    synchronize(sim);
    sim.trim();
    CHECK(sim.stats().host_reserved_bytes == 0);
}

TEST_CASE("never is more told to be free than there is, whatever other threads take and return") {
    Simulation sim("growth=segment");
    std::atomic<bool> over = false;
    std::thread other([&] {
        while (!over) {
            CUdeviceptr ptr = 0;
            if (sim.try_alloc(256 * MiB, legacy, ptr) == EMM_OK) {
                sim.free(ptr, legacy);
            }
            sim.trim();
        }
    });
    uint64_t wrong = 0;
    for (int i = 0; i < 20'000; i++) {
        size_t free = 0, total = 0;
        wrong += pool().get_memory_info(sim.manager, &free, &total) != EMM_OK || free > total;
    }
    over = true;
    other.join();
    CHECK(wrong == 0);
}
