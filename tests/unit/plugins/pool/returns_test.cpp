// Behaviour: requests beside threads that give memory back.
#include "simulation.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>
#include <unistd.h>

using namespace pool_test;

namespace {

// A thread's request for memory, and its course while another thread is held in the driver.
struct Asking {
    std::atomic<pid_t> thread{0};
    std::atomic<bool> ended{false};

    // Asks the kernel: a thread that only waits for a processor does not sleep.
    bool sleeps() const {
        std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
        std::string text;
        std::getline(file, text);
        const size_t name_ends = text.rfind(") ");
        return name_ends != text.npos && text[name_ends + 2] == 'S';
    }
};
Asking *asking = nullptr;
std::atomic<bool> is_giving_back{false};

// The driver's first call that returns memory lasts until the request has ended or waits.
void hold_first() {
    if (is_giving_back.exchange(true)) {
        return;
    }
    constexpr int enough = 100; // looks in a row
    for (int asleep = 0; asleep < enough && !asking->ended;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        asleep = asking->thread != 0 && asking->sleeps() ? asleep + 1 : 0;
    }
}

// The answer of `request` while another thread's trim is at the driver.
template <class Request> emm_status ask_beside_trim(Simulation &sim, const Request &request) {
    Asking mine;
    asking = &mine;
    is_giving_back = false;
    before_giving_back = hold_first;
    std::atomic<bool> trimmed{
        false}; // without giving anything back, if no work is known to be done
    std::thread trimming([&] {
        size_t released = 0;
        pool().trim(sim.manager, 0, &released);
        trimmed = true;
    });
    while (!is_giving_back && !trimmed) {
        std::this_thread::yield();
    }
    emm_status status = EMM_OK;
    std::thread caller([&] {
        cuda().cuCtxSetCurrent(sim.context);
        mine.thread = gettid();
        status = request();
        mine.ended = true;
    });
    caller.join();
    trimming.join();
    before_giving_back = nullptr;
    return status;
}

// A real driver takes as long, and meanwhile other threads call.
void take_time() {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

} // namespace

TEST_CASE("a request waits for what another thread's trim is giving back") {
    for (const char *options : {"max=60MiB", "growth=vmm,max=60MiB"}) {
        INFO(options);
        Simulation sim(options);
        sim.free(sim.alloc(60 * MiB, legacy), legacy);
        cuda().cuStreamSynchronize(legacy);
        CUdeviceptr ptr = 0;
        const emm_status status =
            ask_beside_trim(sim, [&] { return sim.try_alloc(60 * MiB, legacy, ptr); });
        CHECK(status == EMM_OK);
        CHECK(sim.held() == 60 * MiB);
    }
}

TEST_CASE("a request for pinned memory waits for what another thread's trim is giving back") {
    Simulation sim("host_max=60MiB");
    const CUstream stream = sim.stream();
    void *host = nullptr;
    CUdeviceptr device = 0;
    REQUIRE(pool().memhostalloc(sim.manager, 60 * MiB, 0, &host, &device) == EMM_OK);
    REQUIRE(pool().memhostfree(sim.manager, host, 60 * MiB, 0, stream) == EMM_OK);
    const emm_status status = ask_beside_trim(
        sim, [&] { return pool().memhostalloc(sim.manager, 60 * MiB, 0, &host, &device); });
    CHECK(status == EMM_OK);
}

TEST_CASE("a request fails though another thread trims, if that cannot be enough") {
    for (const char *options : {"max=60MiB", "growth=vmm,max=60MiB"}) {
        Simulation sim(options);
        const CUdeviceptr live = sim.alloc(20 * MiB, legacy);
        sim.free(sim.alloc(40 * MiB, legacy), legacy);
        cuda().cuStreamSynchronize(legacy);
        CUdeviceptr ptr = 0;
        const emm_status status =
            ask_beside_trim(sim, [&] { return sim.try_alloc(50 * MiB, legacy, ptr); });
        CHECK(status == EMM_E_OUT_OF_MEMORY);
        sim.free(live, legacy);
    }
}

// Each thread has one block at a time. Three in segments of their own, of up to 14 MiB, leave room
// for the fourth, wherever they lie; memory on its way back must not count against it.
TEST_CASE("no request fails beside slow trims and thresholds with room for what all can need") {
    for (const char *options :
         {"max=60MiB", "growth=vmm,max=60MiB", "max=60MiB,release_threshold=8MiB",
          "growth=vmm,max=60MiB,release_threshold=8MiB", "max=60MiB,release_threshold=0"}) {
        Simulation sim(options);
        constexpr unsigned threads = 4, trimming = 8;
        before_giving_back = take_time;
        std::atomic<int> failed{0}, working{threads};
        std::vector<CUstream> streams;
        for (unsigned i = 0; i < threads; i++) {
            streams.push_back(sim.stream());
        }
        std::vector<std::thread> all;
        for (unsigned i = 0; i < threads; i++) {
            all.emplace_back([&, i] {
                cuda().cuCtxSetCurrent(sim.context);
                std::mt19937_64 random(i);
                for (int round = 0; round < 150; round++) {
                    const size_t size = 1 + random() % (12 * MiB);
                    CUdeviceptr ptr = 0;
                    if (sim.try_alloc(size, streams[i], ptr) != EMM_OK) {
                        failed++;
                        continue;
                    }
                    sim.touch(ptr, 16, streams[i]);
                    sim.free(ptr, random() % 8 ? streams[i] : unordered);
                }
                working--;
            });
        }
        for (unsigned i = 0; i < trimming; i++) {
            all.emplace_back([&] {
                while (working > 0) {
                    size_t released = 0;
                    pool().trim(sim.manager, 0, &released);
                    std::this_thread::yield();
                }
            });
        }
        for (std::thread &thread : all) {
            thread.join();
        }
        before_giving_back = nullptr;
        INFO(options);
        CHECK(failed == 0);
    }
}

namespace {

emm_status reset(Simulation &sim) {
    return pool().reset(sim.manager);
}

emm_status trim_all(Simulation &sim) {
    size_t released = 0;
    return pool().trim(sim.manager, 0, &released);
}

constexpr std::pair<const char *, const char *> return_faults[] = {
    {"growth=segment", "cuMemFree@1"},
    {"growth=vmm", "cuMemUnmap@1+"},
    {"growth=vmm", "cuMemRelease@1"}};

// Leaves frees behind complete events: the next call knows at once that they are complete.
void complete_all(Simulation &sim) {
    size_t released = 0;
    CHECK(pool().trim(sim.manager, SIZE_MAX, &released) == EMM_OK);
    cuda().cuCtxSynchronize();
}

} // namespace

TEST_CASE("what the driver refuses to take back stays counted, and goes back with the next trim") {
    for (const auto &[options, fault] : return_faults) {
        for (const auto give_back : {trim_all, reset}) {
            INFO(options << ", " << fault << (give_back == reset ? ", reset" : ", trim"));
            Simulation sim(options);
            sim.free(sim.alloc(64 * MiB, legacy), legacy);
            complete_all(sim);
            cuda().fail(fault);
            CHECK(give_back(sim) == EMM_OK);
            CHECK(sim.held() > 0);
            CHECK(sim.stats().reserved_bytes == sim.held());
            cuda().fail("");
            complete_all(sim);
            trim_all(sim);
            CHECK(sim.held() == 0);
            CHECK(sim.stats().reserved_bytes == 0);
        }
    }
}

TEST_CASE("pages: what the driver does not unmap in one call it is asked for piece by piece") {
    Simulation sim("growth=vmm,slack=0");
    sim.free(sim.alloc(64 * MiB, legacy), legacy); // in pieces of 2 MiB, side by side
    complete_all(sim);
    cuda().fail("cuMemUnmap@1");
    trim_all(sim);
    cuda().fail("");
    CHECK(sim.held() == 0);
}

namespace {

std::atomic<int> refusals{0};

void refuse_one() {
    cuda().fail(refusals-- > 0 ? "cuMemUnmap@1" : "");
}

} // namespace

TEST_CASE("pages: a trim goes on after pieces that the driver does not unmap") {
    for (const int refused : {1, 100, 1000}) {
        Simulation sim("growth=vmm,slack=0");
        std::vector<CUdeviceptr> blocks(400);
        for (CUdeviceptr &ptr : blocks) {
            ptr = sim.alloc(2 * MiB, legacy);
        }
        for (size_t i = 0; i < blocks.size(); i += 2) { // none beside another
            CHECK(sim.free(blocks[i], legacy) == EMM_OK);
        }
        complete_all(sim);
        const uint64_t before = sim.held();
        refusals = refused;
        before_giving_back = refuse_one;
        trim_all(sim);
        before_giving_back = nullptr;
        cuda().fail("");
        CHECK(before - sim.held() == uint64_t(200 - std::min(refused, 200)) * 2 * MiB);
        CHECK(sim.stats().reserved_bytes == sim.held());
        trim_all(sim);
        CHECK(sim.held() == 400 * MiB);
    }
}

TEST_CASE("what the driver refuses at a pool's end it is asked for once more") {
    for (const auto &[options, fault] :
         {std::pair("growth=segment", "cuMemFree@1"), std::pair("growth=vmm", "cuMemUnmap@1"),
          std::pair("growth=vmm", "cuMemRelease@1")}) {
        INFO(options << ", " << fault);
        const uint64_t before = Simulation::device_bytes();
        {
            Simulation sim(options);
            sim.alloc(64 * MiB, legacy);
            cuda().fail(fault);
        }
        cuda().fail("");
        CHECK(Simulation::device_bytes() == before);
    }
}

TEST_CASE(
    "what the driver has refused to take back counts for max, and a request has it returned") {
    for (const auto &[options, fault] : {std::pair("growth=segment,max=64MiB", "cuMemFree@1"),
                                         std::pair("growth=vmm,max=64MiB", "cuMemRelease@1")}) {
        Simulation sim(options);
        const CUdeviceptr ptr = sim.alloc(64 * MiB, legacy);
        sim.free(ptr, legacy);
        cuda().fail(fault);
        trim_all(sim);
        CHECK(sim.held() > 0);
        before_mem_alloc = before_mem_create = [] {
            CHECK(Simulation::device_bytes() < 64 * MiB); // each has yet to free its part
        };
        sim.alloc(64 * MiB, legacy);
        before_mem_alloc = before_mem_create = nullptr;
        CHECK(sim.held() == 64 * MiB);
        cuda().fail("");
    }
}

TEST_CASE("a reset that cannot wait for the context leaves its memory until it can") {
    Simulation sim("growth=vmm");
    const CUstream stream = sim.stream();
    sim.touch(sim.alloc(64 * MiB, stream), 64 * MiB, stream);
    CUcontext popped = nullptr;
    REQUIRE(cuda().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    REQUIRE(cuda().fail("cuCtxPushCurrent@1+") == 0);
    CHECK(reset(sim) == EMM_OK);
    REQUIRE(cuda().fail("") == 0);
    REQUIRE(cuda().cuCtxPushCurrent(popped) == CUDA_SUCCESS);
    CHECK(sim.held() == 64 * MiB);
    CHECK(reset(sim) == EMM_OK);
    CHECK(sim.held() == 0);
}

TEST_CASE("pinned memory that the driver refuses to take back stays counted until it does") {
    for (const auto give_back : {trim_all, reset}) {
        Simulation sim;
        const uint64_t before = Simulation::host_bytes();
        void *host = nullptr;
        emm_deviceptr device = 0;
        REQUIRE(pool().memhostalloc(sim.manager, MiB, 0, &host, &device) == EMM_OK);
        REQUIRE(pool().memhostfree(sim.manager, host, MiB, 0, legacy) == EMM_OK);
        cuda().cuCtxSynchronize();
        cuda().fail("cuMemFreeHost@1");
        give_back(sim);
        CHECK(sim.stats().host_reserved_bytes == Simulation::host_bytes() - before);
        for (int i = 0; i < 2; i++) {
            cuda().cuCtxSynchronize(); // completes the last trim's event
            trim_all(sim);
        }
        CHECK(sim.stats().host_reserved_bytes == 0);
        CHECK(Simulation::host_bytes() == before);
        cuda().fail("");
    }
}

TEST_CASE("the memory of a pool that ends goes back even if the driver cannot wait for its work") {
    const uint64_t before = Simulation::device_bytes();
    Simulation sim("growth=vmm");
    sim.alloc(64 * MiB, legacy);
    cuda().fail("cuMemAlloc@1+"); // the pool waits by that call, or by the other
    cuda().fail("cuCtxSynchronize@1+");
    sim.close();
    cuda().fail("");
    CHECK(Simulation::device_bytes() == before);
}
