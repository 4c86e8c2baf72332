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
    if (repeats) { // former places are in use until their frees are known to be complete
        CHECK(calls[2] == 0);
        CHECK(calls[3] == 0);
    }
    const std::string progress = getenv("EMM_SIM");
    CHECK((repeats || work_takes_ages() || progress.find("eager") == std::string::npos));
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
            sim.trim(UINT32_MAX); // this keeps all memory
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

namespace {

// A comb whose freed pages have moved behind each other, all of them complete: their places between
// the other pages are idle.
struct Moved {
    explicit Moved(Simulation &sim) : stream(sim.stream()), comb(sim, teeth, stream) {
        synchronize(sim);
        block = sim.alloc(large, stream);
    }
    void free_all(Simulation &sim) {
        sim.free(block, stream);
        for (const CUdeviceptr ptr : comb.kept) {
            sim.free(ptr, stream);
        }
        synchronize(sim);
    }
    const CUstream stream;
    const Comb comb;
    CUdeviceptr block = 0;
};

} // namespace

TEST_CASE(
    "places: an idle one that the driver does not end keeps no other memory from going back") {
    Simulation sim("growth=vmm,slack=0");
    Moved moved(sim);
    moved.free_all(sim);
    for (int i = 0; i < 2; i++) { // the first also queries complete frees
        cuda().fail("cuMemUnmap@1");
        sim.trim();
        synchronize(sim);
    }
    CHECK(mapped_pages(moved.comb.freed) == 1);
    CHECK(sim.held() == 2 * MiB);
    CHECK(sim.stats().reserved_bytes == sim.held());
    cuda().fail("");
    sim.trim();
    CHECK(sim.held() == 0);
}

TEST_CASE("places: an idle one that the driver does not end keeps no other memory from a pause") {
    Simulation sim("growth=vmm,slack=0");
    const Moved moved(sim);
    cuda().fail("cuMemUnmap@1");
    size_t released = 0;
    REQUIRE(pool().pause(sim.manager, 0, &released) == EMM_OK);
    cuda().fail("");
    CHECK(mapped_pages(moved.comb.freed) == 1);
    CHECK(sim.held() == 2 * MiB);
    REQUIRE(pool().resume(sim.manager, 0) == EMM_OK);
    CHECK(sim.held() == held);
}

// A block in the second range of addresses, made of pieces that have idle places in the first.
TEST_CASE("places: after a reset what is mapped at a place that stays counts as held") {
    constexpr size_t part = 128 * MiB, parts = 31; // of 4 GiB of addresses
    for (int first = 1; first <= 3; first++) {
        for (int second = first; second <= first + 2; second++) {
            Simulation sim("growth=vmm,slack=0");
            const CUdeviceptr freed = sim.alloc(part, legacy);
            for (size_t i = 1; i < parts; i++) {
                sim.alloc(part, legacy);
            }
            sim.free(freed, legacy);
            synchronize(sim);
            sim.alloc(part + 64 * MiB, legacy);
            REQUIRE(sim.held() == parts * part + 64 * MiB);
            REQUIRE(piece_at(freed) != 0);
            cuda().fail(("cuMemUnmap@" + std::to_string(first)).c_str());
            cuda().fail(("cuMemUnmap@" + std::to_string(second)).c_str());
            REQUIRE(pool().reset(sim.manager) == EMM_OK);
            cuda().fail("");
            INFO(first << ", " << second);
            CHECK(sim.stats().reserved_bytes == sim.held());
            sim.trim();
            CHECK(sim.held() == 0);
            CHECK(sim.stats().reserved_bytes == 0);
        }
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
    for (size_t done = 0; done < pages; done += 100) { // the pages get at most half a GiB in all
        for (size_t i = done; i < done + 100; i++) {
            sim.free(freed[i], stream);
        }
        synchronize(sim);
        blocks.push_back(sim.alloc(100 * 2 * MiB, stream));
    }
    CHECK(mapped_pages(freed) <= bound);
    CHECK(mapped_pages(freed) > bound / 2);
    CHECK(mapped_pages({freed.end() - 100, freed.end()}) > 50); // the youngest are mapped
    CHECK(mapped_pages({freed.begin(), freed.begin() + 100}) == 0);
    CHECK(sim.races() == 0);
}
