// Behaviour: requests that get host memory once the device or `max` has no more, through the
// plugin's table.
#include "simulation.h"

using namespace pool_test;

namespace {

// A simulation after which no host memory is left either.
struct Spilling {
    explicit Spilling(const std::string &options) : sim("growth=vmm," + options) {}
    ~Spilling() {
        sim.close();
        CHECK(Simulation::host_bytes() == before);
    }
    uint64_t of_host() const { return Simulation::host_bytes() - before; }

    const uint64_t before = Simulation::host_bytes();
    Simulation sim;
};

emm_status status_of(Simulation &sim, size_t size, CUstream stream = legacy) {
    CUdeviceptr ptr = 0;
    return sim.try_alloc(size, stream, ptr);
}

// Completes all work, so that the pool's next query says so.
void finish_work(Simulation &sim) {
    synchronize(sim);
    sim.trim(SIZE_MAX); // records events for its queries
    synchronize(sim);
}

} // namespace

TEST_CASE("spill: what max has no room for lies in host memory, and both are told") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUdeviceptr first = sim.alloc(48 * MiB, legacy);
    CHECK(spilling.of_host() == 0);
    const CUdeviceptr second = sim.alloc(48 * MiB, legacy), small = sim.alloc(3000, legacy);
    for (const auto &[ptr, size] :
         {std::pair(first, 48 * MiB), {second, 48 * MiB}, {small, 3000}}) {
        sim.touch(ptr, size, legacy);
    }
    const emm_stats stats = sim.stats();
    CHECK(stats.spilled_bytes >= 48 * MiB);
    CHECK(stats.spilled_bytes == spilling.of_host());
    CHECK(stats.reserved_bytes == sim.held() + spilling.of_host());
    CHECK(sim.held() <= 64 * MiB);
    CHECK(stats.live_bytes == 96 * MiB + 3000);
}

TEST_CASE("spill: what a full device has no room for lies in host memory") {
    Spilling spilling("spill=256MiB");
    Simulation &sim = spilling.sim;
    cuda().cuCtxPushCurrent(sim.context);
    CUdeviceptr others[2] = {};
    REQUIRE(cuda().cuMemAlloc(&others[0], 4096 * MiB) == CUDA_SUCCESS);
    CHECK(cuda().cuMemAlloc(&others[1], 8192 * MiB - Simulation::device_bytes() - 32 * MiB) ==
          CUDA_SUCCESS);
    const CUdeviceptr ptr = sim.alloc(200 * MiB, legacy);
    sim.touch(ptr, 200 * MiB, legacy);
    CHECK(sim.stats().spilled_bytes >= 200 * MiB);
    CHECK(sim.free(ptr, legacy) == EMM_OK);
    CHECK(cuda().cuMemFree(others[0]) == CUDA_SUCCESS);
    CHECK(cuda().cuMemFree(others[1]) == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

TEST_CASE("spill: host memory has an end too, and the failure names it") {
    Spilling spilling("max=64MiB,spill=32MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(60 * MiB, legacy);
    sim.alloc(30 * MiB, legacy);
    CHECK(status_of(sim, 16 * MiB) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("spill 33554432"));
    CHECK(spilling.of_host() <= 32 * MiB);
    CHECK(status_of(sim, 65 * MiB) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("max allows at most"));
}

TEST_CASE("spill: a request that only host memory can hold is served, and one that neither can "
          "fails at once") {
    Spilling spilling("max=32MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    CHECK(sim.free(sim.alloc(60 * MiB, legacy), legacy) == EMM_OK);
    const uint64_t calls = cuda().call_count("cuMemCreate");
    CHECK(status_of(sim, 65 * MiB) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("spill allows at most"));
    CHECK(cuda().call_count("cuMemCreate") == calls);
}

TEST_CASE("spill: idle device memory serves before idle host memory does") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUdeviceptr of_device = sim.alloc(60 * MiB, legacy),
                      of_host = sim.alloc(40 * MiB, legacy);
    CHECK(sim.free(of_host, legacy) == EMM_OK);
    CHECK(sim.free(of_device, legacy) == EMM_OK);
    finish_work(sim);
    const CUdeviceptr next = sim.alloc(30 * MiB, legacy);
    CHECK((of_device <= next && next < of_device + 60 * MiB));
    const CUdeviceptr third = sim.alloc(20 * MiB, legacy);
    CHECK((of_device <= third && third < of_device + 60 * MiB));
    const uint64_t spilled = sim.stats().spilled_bytes;
    sim.alloc(38 * MiB, legacy); // the idle memory on the host suffices
    CHECK(sim.stats().spilled_bytes == spilled);
}

TEST_CASE("spill: a trim returns idle host memory first") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUdeviceptr of_device = sim.alloc(60 * MiB, legacy),
                      of_host = sim.alloc(40 * MiB, legacy);
    sim.touch(of_host, 40 * MiB, legacy);
    CHECK(sim.free(of_host, legacy) == EMM_OK);
    CHECK(sim.free(of_device, legacy) == EMM_OK);
    finish_work(sim);
    const uint64_t held = sim.held();
    CHECK(sim.trim(held) >= 40 * MiB);
    CHECK(sim.held() == held);
    CHECK(spilling.of_host() == 0);
    CHECK(sim.stats().spilled_bytes == 0);
    sim.trim();
    CHECK(sim.held() == 0);
}

TEST_CASE("spill: a pause leaves host memory where it is, and returns all of the device's") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUdeviceptr of_device = sim.alloc(60 * MiB, legacy),
                      of_host = sim.alloc(40 * MiB, legacy);
    sim.touch(of_device, 60 * MiB, legacy);
    sim.touch(of_host, 40 * MiB, legacy);
    const uint64_t held = sim.held(), spilled = sim.stats().spilled_bytes;
    size_t released = 0;
    REQUIRE(pool().pause(sim.manager, EMM_PAUSE_DISCARD, &released) == EMM_OK);
    CHECK(released == held);
    CHECK(sim.held() == 0);
    CHECK(sim.stats().spilled_bytes == spilled);
    CHECK(sim.stats().reserved_bytes == spilled);
    char byte = 7;
    CHECK(pool().read_paused(sim.manager, of_host, 1, &byte) == EMM_S_IGNORED);
    CHECK(pool().read_paused(sim.manager, of_device, 1, &byte) == EMM_E_NOT_OWNED);
    CHECK(byte == 7);
    CHECK(sim.free(of_host, legacy) == EMM_OK);
    REQUIRE(pool().resume(sim.manager, 0) == EMM_OK);
    CHECK(sim.held() == held);
    sim.touch(of_device, 60 * MiB, legacy);
}

TEST_CASE("spill: other processes cannot open host memory, and hear why") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(60 * MiB, legacy);
    const CUdeviceptr of_host = sim.alloc(40 * MiB, legacy);
    emm_ipc_handle handle = {};
    CHECK(pool().get_ipc_handle(sim.manager, of_host, 40 * MiB, &handle) == EMM_E_NOT_SUPPORTED);
    CHECK(last_failure().driver_result == 0); // it is the pool that refuses
    CHECK_THAT(last_failure().text, ContainsSubstring("was spilled to host memory"));
}

TEST_CASE("spill: a peer has access to host memory, before and after it is taken") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(60 * MiB, legacy);
    const CUdeviceptr before = sim.alloc(20 * MiB, legacy);
    REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
    const CUdeviceptr after = sim.alloc(20 * MiB, legacy);
    const auto get =
        reinterpret_cast<decltype(&::cuMemGetAccess)>(host().driver("cuMemGetAccess", 12000));
    CUmemLocation peer = {};
    peer.type = CU_MEM_LOCATION_TYPE_DEVICE;
    peer.id = 1;
    for (const CUdeviceptr ptr : {before, after}) {
        unsigned long long flags = 0;
        REQUIRE(get(&flags, &peer, ptr) == CUDA_SUCCESS);
        CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    CHECK(sim.stats().spilled_bytes >= 40 * MiB);
}

TEST_CASE("spill: a reset gives host memory back") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(60 * MiB, legacy);
    sim.alloc(40 * MiB, legacy);
    REQUIRE(pool().reset(sim.manager) == EMM_OK);
    CHECK(spilling.of_host() == 0);
    CHECK(sim.stats().spilled_bytes == 0);
    sim.alloc(60 * MiB, legacy);
    CHECK(sim.stats().spilled_bytes == 0);
}

TEST_CASE("spill: a lower max is reached though idle host memory goes first") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUdeviceptr of_device = sim.alloc(32 * MiB, legacy);
    sim.alloc(30 * MiB, legacy);
    const CUdeviceptr of_host = sim.alloc(40 * MiB, legacy);
    CHECK(sim.free(of_host, legacy) == EMM_OK);
    CHECK(sim.free(of_device, legacy) == EMM_OK);
    finish_work(sim);
    REQUIRE(pool().set_option(sim.manager, "max", "36MiB") == EMM_OK);
    CHECK(sim.held() <= 36 * MiB);
}

TEST_CASE("spill: threads keep blocks while host memory is beyond max") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    const CUstream stream = sim.stream();
    sim.alloc(48 * MiB, stream);
    sim.alloc(40 * MiB, stream);
    const CUdeviceptr lower = sim.alloc(2 * MiB, stream), upper = sim.alloc(2 * MiB, stream);
    CHECK(sim.free(lower, stream) == EMM_OK);
    CHECK(sim.free(upper, stream) == EMM_OK);
    CHECK(sim.alloc(2 * MiB, stream) == upper); // the thread's latest; the heap's is the lowest
}

TEST_CASE("spill: a lower max takes no more idle device memory than it has to") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(20 * MiB, legacy);
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 11; i++) {
        blocks.push_back(sim.alloc(4 * MiB, legacy));
    }
    sim.alloc(40 * MiB, legacy);
    for (const CUdeviceptr ptr : blocks) {
        CHECK(sim.free(ptr, legacy) == EMM_OK);
    }
    finish_work(sim);
    REQUIRE(pool().set_option(sim.manager, "max", "36MiB") == EMM_OK);
    CHECK(sim.held() <= 36 * MiB);
    CHECK(sim.held() >= 32 * MiB);
}

TEST_CASE("spill: idle host memory does not count as free device memory") {
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    sim.alloc(60 * MiB, legacy);
    const CUdeviceptr of_host = sim.alloc(40 * MiB, legacy);
    CHECK(sim.free(of_host, legacy) == EMM_OK);
    finish_work(sim);
    CHECK(sim.stats().cached_bytes >= 40 * MiB);
    size_t free = 0, total = 0;
    REQUIRE(pool().get_memory_info(sim.manager, &free, &total) == EMM_OK);
    CHECK(free == 4 * MiB);
    CHECK(total == 64 * MiB);
}

TEST_CASE("spill: where the driver gives no host memory, the pool is as without") {
    REQUIRE(cuda().fail("cuMemCreate@1:801") == 0);
    Spilling spilling("max=64MiB,spill=64MiB");
    Simulation &sim = spilling.sim;
    cuda().fail(nullptr);
    sim.alloc(60 * MiB, legacy);
    CHECK(status_of(sim, 40 * MiB) == EMM_E_OUT_OF_MEMORY);
    CHECK(spilling.of_host() == 0);
}

TEST_CASE("spill: a request fails alone where a call for host memory fails") {
    for (const char *fault : {"cuMemCreate@1+", "cuMemMap@1+", "cuMemSetAccess@1+"}) {
        Spilling spilling("max=64MiB,spill=64MiB");
        Simulation &sim = spilling.sim;
        sim.alloc(62 * MiB, legacy);
        REQUIRE(cuda().fail(fault) == 0);
        CHECK(status_of(sim, 40 * MiB) == EMM_E_OUT_OF_MEMORY);
        cuda().fail(nullptr);
        const CUdeviceptr ptr = sim.alloc(40 * MiB, legacy);
        sim.touch(ptr, 40 * MiB, legacy);
        CHECK(sim.stats().spilled_bytes == spilling.of_host());
    }
}

TEST_CASE("spill: it needs growth=vmm and two MiB at least") {
    CHECK(check_options("spill=2MiB") == EMM_OK);
    CHECK(check_options("spill=8GiB,growth=segment") == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(last_failure().text,
               ContainsSubstring("expected growth=vmm, found growth=segment,"));
    CHECK(check_options("spill=8GiB,ipc=dedicated") == EMM_E_PLUGIN_SPEC);
    CHECK_THAT(last_failure().text, ContainsSubstring("expected growth=vmm, found ipc=dedicated,"));
    CHECK(check_options("spill=1MiB") == EMM_E_PLUGIN_SPEC);
}
