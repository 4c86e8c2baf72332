// Behaviour: close to `max`, a request fails only if no idle page could serve it.
#include "simulation.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

using namespace pool_test;

namespace {

constexpr uint64_t page = 2 * MiB;

struct Live {
    CUdeviceptr ptr = 0;
    uint64_t size = 0;
    CUstream stream = nullptr;
};

// The pages of all `limit` bytes without live memory.
uint64_t idle_pages(const std::vector<Live> &live, uint64_t limit) {
    std::set<uint64_t> used;
    for (const Live &each : live) {
        for (uint64_t at = each.ptr / page; at <= (each.ptr + each.size - 1) / page; at++) {
            used.insert(at);
        }
    }
    return limit / page - std::min<uint64_t>(used.size(), limit / page);
}

// EMM_TEST_CHURN_SECONDS extends the test beyond its steps.
bool goes_on(int steps, std::chrono::steady_clock::time_point begin) {
    const char *seconds = getenv("EMM_TEST_CHURN_SECONDS");
    return steps < 2'000 || (seconds && std::chrono::steady_clock::now() - begin <
                                            std::chrono::seconds(atoi(seconds)));
}

} // namespace

TEST_CASE("churn: beside a limit of 1.05 x live nothing fails that idle pages could serve") {
    constexpr uint64_t limit = 1024 * MiB, most_live = limit / 105 * 100;
    Simulation sim("growth=vmm,max=" + std::to_string(limit));
    const CUstream streams[] = {legacy, sim.stream(), sim.stream(false), unordered};
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> exponent(std::log2(512.0), std::log2(limit / 4.0));
    std::vector<Live> live;
    uint64_t bytes = 0, failed = 0, served = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; goes_on(step, begin); step++) {
        const auto size = uint64_t(std::exp2(exponent(random)));
        while (bytes + size > most_live) {
            std::swap(live[random() % live.size()], live.back());
            REQUIRE(sim.free(live.back().ptr, live.back().stream) == EMM_OK);
            bytes -= live.back().size;
            live.pop_back();
        }
        const CUstream stream = streams[random() % 4];
        CUdeviceptr ptr = 0;
        if (sim.try_alloc(size, stream, ptr) == EMM_OK) {
            sim.touch(ptr, size, stream == unordered ? legacy : stream);
            live.push_back({ptr, size, stream});
            bytes += size;
            served++;
            continue;
        }
        failed++;
        CAPTURE(step, size, bytes, idle_pages(live, limit));
        CHECK(idle_pages(live, limit) < (size + page - 1) / page);
    }
    WARN(served << " served, " << failed << " that no idle pages could serve");
}
