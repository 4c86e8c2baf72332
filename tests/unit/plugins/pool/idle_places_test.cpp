// Behaviour: growth=vmm with places at which nothing is used, which stay mapped.
#include "places.h"

#include <algorithm>

using namespace pool_test;

namespace {

uint64_t calls_for_memory() {
    uint64_t calls = 0;
    for (const char *call :
         {"cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess"}) {
        calls += cuda().call_count(call);
    }
    return calls;
}

size_t mapped_pages(const std::vector<CUdeviceptr> &ptrs) {
    return size_t(std::count_if(ptrs.begin(), ptrs.end(),
                                [](CUdeviceptr ptr) { return piece_at(ptr) != 0; }));
}

} // namespace

// In each round the pages of `left` move behind `end`, and back in front of `right`.
TEST_CASE("places: a round that repeats finds its mappings, and asks the driver for no memory") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    constexpr size_t page = 2 * MiB, left_size = 4 * page, right_size = 8 * page;
    const auto free = [&](CUdeviceptr ptr) {
        sim.free(ptr, stream);
        synchronize(sim);
    };
    const auto alloc = [&](size_t size) {
        const CUdeviceptr ptr = sim.alloc(size, stream);
        sim.touch(ptr, size, stream);
        return ptr;
    };
    free(alloc(left_size + right_size + page));
    CUdeviceptr left = alloc(left_size), right = alloc(right_size), end = alloc(page);
    free(left);
    std::vector<uint64_t> calls;
    bool repeats = true;
    for (int round = 0; round < 4; round++) {
        const uint64_t before = calls_for_memory();
        free(end);
        const CUdeviceptr behind = alloc(page + left_size);
        const CUdeviceptr end_before = end;
        free(behind);
        end = alloc(page);
        free(right);
        const CUdeviceptr both = alloc(left_size + right_size);
        repeats = repeats && behind == end_before && both == left;
        free(both);
        left = alloc(left_size);
        right = alloc(right_size);
        free(left);
        calls.push_back(calls_for_memory() - before);
    }
    CHECK(sim.held() == left_size + right_size + page);
    CHECK(calls.front() > 0);
    if (repeats) { // former places are in use until what was freed there is known to be complete
        CHECK(calls[2] == 0);
        CHECK(calls[3] == 0);
    }
    const std::string progress = getenv("EMM_SIM");
    CHECK((repeats || work_takes_ages() || progress.find("lazy") != std::string::npos));
    CHECK(sim.races() == 0);
}

TEST_CASE("places: idle mappings end with a trim, with a reset and in a pause") {
    for (const char *way : {"trim", "reset", "pause"}) {
        Simulation sim("growth=vmm,slack=0");
        const CUstream stream = sim.stream();
        const Comb comb(sim, teeth, stream);
        synchronize(sim);
        const CUdeviceptr block = sim.alloc(large, stream);
        sim.touch(block, large, stream);
        CHECK(pages_in_two_places(block, large, comb.freed) == teeth);
        synchronize(sim);
        INFO(way);
        if (std::string(way) == "trim") {
            sim.trim(UINT32_MAX); // which keeps all memory
            sim.trim(UINT32_MAX);
            CHECK(pages_in_two_places(block, large, comb.freed) == 0);
            CHECK(mapped_pages(comb.kept) == teeth);
        } else if (std::string(way) == "reset") {
            REQUIRE(pool().reset(sim.manager) == EMM_OK);
            CHECK(mapped_pages(comb.freed) == 0);
        } else {
            size_t released = 0;
            REQUIRE(pool().pause(sim.manager, 0, &released) == EMM_OK);
            CHECK(mapped_pages(comb.freed) == 0);
            REQUIRE(pool().resume(sim.manager, 0) == EMM_OK);
            CHECK(mapped_pages(comb.freed) == 0);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("places: the number of idle mappings has a bound, beyond which the oldest ends") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    constexpr size_t pages = 1500, bound = 1024;
    std::vector<CUdeviceptr> freed, kept;
    for (size_t i = 0; i < pages; i++) {
        freed.push_back(sim.alloc(2 * MiB, stream));
        kept.push_back(sim.alloc(2 * MiB, stream));
    }
    std::vector<CUdeviceptr> blocks;
    for (size_t done = 0; done < pages; done += 100) { // which get at most half a GiB in all
        for (size_t i = done; i < done + 100; i++) {
            sim.free(freed[i], stream);
        }
        synchronize(sim);
        blocks.push_back(sim.alloc(100 * 2 * MiB, stream));
    }
    CHECK(mapped_pages(freed) <= bound);
    CHECK(mapped_pages(freed) > bound / 2);
    CHECK(mapped_pages({freed.end() - 100, freed.end()}) > 50); // the youngest are there
    CHECK(mapped_pages({freed.begin(), freed.begin() + 100}) == 0);
    CHECK(sim.races() == 0);
}
