// Behaviour: options that change while the pool serves.
#include "simulation.h"

#include <atomic>
#include <thread>
#include <vector>

using namespace pool_test;

namespace {

emm_status set(Simulation &sim, const char *key, const char *text) {
    return pool().set_option(sim.manager, key, text);
}

// Live memory with a pattern of its own, to show that its address still serves.
CUdeviceptr touched(Simulation &sim, size_t size, CUstream stream) {
    const CUdeviceptr ptr = sim.alloc(size, stream);
    sim.touch(ptr, size, stream);
    return ptr;
}

// Completes all work, so that the pool's next query finds it complete in every mode of progress.
void complete_all_work(Simulation &sim) {
    synchronize(sim);
    sim.trim(SIZE_MAX); // records events for its queries
    synchronize(sim);
}

const char *const both_growths[] = {"growth=vmm", "growth=segment"};

} // namespace

TEST_CASE("set_option: the table says that max, slack and release_threshold may change") {
    std::string changing;
    for (const emm_option *option = pool().options; option->name; option++) {
        changing += option->reserved == EMM_OPTION_CHANGES ? std::string(option->name) + " " : "";
    }
    CHECK(changing == "max release_threshold slack ");
}

TEST_CASE("set_option: a lower max returns what is idle, and refuses growth until it fits") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(growth);
        const CUstream stream = sim.stream();
        const CUdeviceptr live = touched(sim, 32 * MiB, stream), idle = sim.alloc(64 * MiB, stream);
        CHECK(sim.free(idle, stream) == EMM_OK);
        complete_all_work(sim);
        REQUIRE(set(sim, "max", "16MiB") == EMM_OK);
        CHECK(sim.held() == 32 * MiB);
        CHECK(sim.stats().live_bytes == 32 * MiB);
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(8 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        CHECK_THAT(last_failure().text, ContainsSubstring("max 16777216"));
        CHECK(sim.try_alloc(17 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        sim.touch(live, 32 * MiB, stream);
        synchronize(sim);
        CHECK(sim.free(live, stream, 32 * MiB) == EMM_OK);
        complete_all_work(sim);
        REQUIRE(set(sim, "max", "16MiB") == EMM_OK); // the second call finds idle memory
        CHECK(sim.held() <= 16 * MiB);
        CHECK(sim.free(sim.alloc(8 * MiB, stream), stream) == EMM_OK);
    }
}

TEST_CASE("set_option: what is freed beyond a lower max goes back as it is freed") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(std::string(growth) + ",slack=0");
        const CUstream stream = sim.stream();
        const CUdeviceptr kept = sim.alloc(8 * MiB, stream), freed = sim.alloc(40 * MiB, stream);
        REQUIRE(set(sim, "max", "16MiB") == EMM_OK);
        synchronize(sim);
        CHECK(sim.free(freed, stream) == EMM_OK);
        complete_all_work(sim);
        CHECK(sim.free(sim.alloc(3000, stream), stream) == EMM_OK);
        CHECK(sim.held() <= 16 * MiB);
        CHECK(sim.free(kept, stream) == EMM_OK);
    }
}

TEST_CASE("set_option: until the pool fits a lower max, threads keep no blocks that they free") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(growth);
        const CUstream stream = sim.stream();
        std::vector<CUdeviceptr> blocks;
        for (const size_t size : {2, 2, 2, 2, 11, 7}) { // a thread keeps four of up to 2 MiB
            blocks.push_back(sim.alloc(size * MiB, stream));
        }
        const CUstream other = sim.stream();
        const CUdeviceptr last = sim.alloc(4 * MiB, other);
        REQUIRE(set(sim, "max", "2MiB") == EMM_OK);
        for (const CUdeviceptr ptr : blocks) {
            CHECK(sim.free(ptr, stream) == EMM_OK);
            synchronize(sim);
        }
        CHECK(sim.free(last, other) == EMM_OK); // asks about the others
        CHECK(sim.held() <= 4 * MiB);
        REQUIRE(set(sim, "max", nullptr) == EMM_OK);
        CHECK(sim.free(sim.alloc(2 * MiB, stream), stream) == EMM_OK);
        CHECK(sim.free(sim.alloc(2 * MiB, stream), stream) == EMM_OK);
        const uint64_t calls = driver_calls();
        CHECK(sim.free(sim.alloc(2 * MiB, stream), stream) == EMM_OK);
        CHECK(driver_calls() == calls);
    }
}

TEST_CASE("set_option: a lower max takes back what was freed with no stream and is complete") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(growth);
        std::vector<CUdeviceptr> blocks;
        for (int i = 0; i < 12; i++) {
            blocks.push_back(sim.alloc(2 * MiB, unordered));
        }
        for (const CUdeviceptr ptr : blocks) {
            CHECK(sim.free(ptr, unordered) == EMM_OK);
        }
        synchronize(sim);
        REQUIRE(set(sim, "max", "4MiB") == EMM_OK);
        synchronize(sim);
        REQUIRE(set(sim, "max", "2MiB") == EMM_OK); // has the answer of a driver that lags
        CHECK(sim.held() <= 2 * MiB);
    }
}

TEST_CASE("set_option: while the pool holds more than max, idle memory serves by moving") {
    Simulation sim("growth=vmm");
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> blocks(6);
    for (CUdeviceptr &ptr : blocks) {
        ptr = touched(sim, 20 * MiB, stream);
    }
    const uint64_t held = sim.held();
    CHECK(pool().defer_cleanup(sim.manager, 1) == EMM_OK); // so the pool returns nothing
    REQUIRE(set(sim, "max", "100MiB") == EMM_OK);
    for (const size_t i : {0, 2, 4}) {
        CHECK(sim.free(blocks[i], stream) == EMM_OK);
    }
    CUdeviceptr ptr = 0;
    REQUIRE(sim.try_alloc(40 * MiB, stream, ptr) == EMM_OK);
    CHECK(sim.held() == held);
    CHECK(sim.try_alloc(60 * MiB, stream, blocks[0]) == EMM_E_OUT_OF_MEMORY);
    CHECK(sim.free(ptr, stream) == EMM_OK);
    for (const size_t i : {1, 3, 5}) {
        CHECK(sim.free(blocks[i], stream) == EMM_OK);
    }
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
}

TEST_CASE("set_option: a higher max, or none, serves what was refused before") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(std::string(growth) + ",max=16MiB");
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(20 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
        REQUIRE(set(sim, "max", "32MiB") == EMM_OK);
        CHECK(sim.free(sim.alloc(20 * MiB, legacy), legacy) == EMM_OK);
        CHECK(sim.try_alloc(40 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
        REQUIRE(set(sim, "max", nullptr) == EMM_OK);
        CHECK(sim.free(sim.alloc(40 * MiB, legacy), legacy) == EMM_OK);
    }
}

TEST_CASE("set_option: get_memory_info tells of the present max") {
    Simulation sim("max=64MiB");
    size_t free = 0, total = 0;
    const CUdeviceptr live = sim.alloc(32 * MiB, legacy);
    REQUIRE(set(sim, "max", "16MiB") == EMM_OK);
    REQUIRE(pool().get_memory_info(sim.manager, &free, &total) == EMM_OK);
    CHECK(total == 16 * MiB);
    CHECK(free == 0);
    CHECK(sim.free(live, legacy) == EMM_OK);
}

TEST_CASE("set_option: a threshold is kept from then on, also by threads' magazines") {
    for (const char *growth : both_growths) {
        INFO(growth);
        Simulation sim(growth);
        const CUstream stream = sim.stream();
        const CUdeviceptr large = sim.alloc(32 * MiB, stream), small = sim.alloc(MiB, stream);
        CHECK(sim.free(large, stream) == EMM_OK);
        CHECK(sim.free(small, stream) == EMM_OK); // the magazine keeps it
        complete_all_work(sim);
        REQUIRE(set(sim, "release_threshold", "0") == EMM_OK);
        CHECK(sim.held() == 0);
        const CUdeviceptr again = sim.alloc(MiB, stream);
        CHECK(sim.free(again, stream) == EMM_OK);
        complete_all_work(sim);
        CHECK(sim.free(sim.alloc(512, stream), stream) == EMM_OK);
        CHECK(sim.held() <= 2 * MiB);
        REQUIRE(set(sim, "release_threshold", nullptr) == EMM_OK);
        CHECK(sim.free(sim.alloc(32 * MiB, stream), stream) == EMM_OK);
        CHECK(sim.held() >= 32 * MiB);
    }
}

TEST_CASE("set_option: a refused value changes nothing, and the reason is that of create") {
    Simulation sim("max=64MiB,initial=32MiB");
    const uint64_t held = sim.held();
    const std::pair<std::pair<const char *, const char *>, const char *> refused[] = {
        {{"max", "1MiB"}, "option max: expected at least 2MiB, found 1MiB"},
        {{"max", "16MiB"}, "option initial: expected no more than fits into max, which is 16MiB"},
        {{"slack", "2"}, "option slack: expected a part of the peak between 0 and 1"},
    };
    for (const auto &[setting, words] : refused) {
        CHECK(set(sim, setting.first, setting.second) == EMM_E_PLUGIN_SPEC);
        CHECK_THAT(last_failure().text, ContainsSubstring(words));
    }
    CHECK(sim.held() == held);
    size_t free = 0, total = 0;
    REQUIRE(pool().get_memory_info(sim.manager, &free, &total) == EMM_OK);
    CHECK(total == 64 * MiB);
}

TEST_CASE("set_option: a changed max holds over a reset, and in a pause") {
    Simulation sim("growth=vmm");
    REQUIRE(set(sim, "max", "16MiB") == EMM_OK);
    CHECK(pool().reset(sim.manager) == EMM_OK);
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(20 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
    const CUdeviceptr live = touched(sim, 12 * MiB, legacy);
    size_t released = 0;
    REQUIRE(pool().pause(sim.manager, EMM_PAUSE_KEEP, &released) == EMM_OK);
    REQUIRE(set(sim, "max", "8MiB") == EMM_OK);
    REQUIRE(pool().resume(sim.manager, 0) == EMM_OK);
    CHECK(sim.held() == 12 * MiB);
    sim.touch(live, 12 * MiB, legacy);
    CHECK(sim.try_alloc(4 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
}

TEST_CASE("set_option: in a deferred section nothing goes back until its end") {
    Simulation sim;
    CHECK(sim.free(sim.alloc(64 * MiB, legacy), legacy) == EMM_OK);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    REQUIRE(set(sim, "max", "16MiB") == EMM_OK);
    CHECK(sim.held() == 64 * MiB);
    REQUIRE(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    complete_all_work(sim);
    CHECK(sim.free(sim.alloc(3000, legacy), legacy) == EMM_OK);
    CHECK(sim.held() <= 16 * MiB);
}

TEST_CASE("set_option: threads allocate and free while options change") {
    for (const char *growth : both_growths) {
        Simulation sim(growth);
        std::atomic<bool> over{false};
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            const CUstream stream = i % 2 == 0 ? sim.stream() : unordered;
            threads.emplace_back([&, stream] {
                for (int n = 1; !over || n < 50; n++) {
                    const size_t size = n % 3 == 0 ? 512 : n % 3 * MiB;
                    CUdeviceptr ptr = 0;
                    const emm_status status = sim.try_alloc(size, stream, ptr);
                    wrong += status != EMM_OK && status != EMM_E_OUT_OF_MEMORY;
                    wrong += status == EMM_OK && sim.free(ptr, stream, size) != EMM_OK;
                }
            });
        }
        for (int n = 0; n < 30; n++) {
            wrong += set(sim, "max", n % 2 == 0 ? "4MiB" : "64MiB") != EMM_OK;
            wrong += set(sim, "release_threshold", n % 3 == 0 ? "1MiB" : nullptr) != EMM_OK;
            wrong += set(sim, "slack", n % 4 == 0 ? "0" : "0.5") != EMM_OK;
        }
        over = true;
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(wrong == 0);
        REQUIRE(set(sim, "max", "2MiB") == EMM_OK);
        synchronize(sim);
        sim.trim();
        CHECK(sim.held() == 0);
    }
}
