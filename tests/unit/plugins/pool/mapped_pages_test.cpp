// Behaviour: the pool with growth=vmm: blocks of pages that are mapped and unmapped singly.
#include "simulation.h"

using namespace pool_test;

namespace {

unsigned long long access_of(int device, CUdeviceptr ptr) {
    static const auto get =
        reinterpret_cast<decltype(&::cuMemGetAccess)>(host().driver("cuMemGetAccess", 12000));
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    unsigned long long flags = 0;
    REQUIRE(get(&flags, &location, ptr) == CUDA_SUCCESS);
    return flags;
}

template <class Function> Function *entry(const char *name) {
    return reinterpret_cast<Function *>(host().driver(name, 12000));
}

// The properties of the piece behind an address.
CUmemAllocationProp properties_of(CUdeviceptr ptr) {
    CUmemGenericAllocationHandle piece = 0;
    CUmemAllocationProp found = {};
    REQUIRE(entry<decltype(::cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle")(
                &piece, reinterpret_cast<void *>(ptr)) == CUDA_SUCCESS);
    REQUIRE(entry<decltype(::cuMemGetAllocationPropertiesFromHandle)>(
                "cuMemGetAllocationPropertiesFromHandle")(&found, piece) == CUDA_SUCCESS);
    REQUIRE(entry<decltype(::cuMemRelease)>("cuMemRelease")(piece) == CUDA_SUCCESS);
    return found;
}

// Blocks of one page, every other one free.
std::vector<CUdeviceptr> make_comb(Simulation &sim, int teeth, CUstream stream) {
    std::vector<CUdeviceptr> blocks, kept;
    for (int i = 0; i < 2 * teeth; i++) {
        blocks.push_back(sim.alloc(2 * MiB, stream));
        sim.touch(blocks.back(), 2 * MiB, stream);
    }
    for (int i = 0; i < 2 * teeth; i++) {
        if (i % 2) {
            kept.push_back(blocks[size_t(i)]);
        } else {
            sim.free(blocks[size_t(i)], stream);
        }
    }
    return kept;
}

} // namespace

TEST_CASE("pages: a network card may reach each piece, unless rdma=0") {
    for (const bool reaches : {true, false}) {
        Simulation sim(reaches ? "growth=vmm" : "growth=vmm,rdma=0");
        for (const size_t size : {4 * KiB, 5 * MiB, 300 * MiB}) {
            const CUdeviceptr ptr = sim.alloc(size, legacy);
            CHECK(properties_of(ptr).allocFlags.gpuDirectRDMACapable == reaches);
            CHECK(sim.free(ptr, legacy) == EMM_OK);
        }
    }
}

TEST_CASE("pages: a large block is made of free pages from everywhere") {
    Simulation sim("growth=vmm,max=64MiB");
    const std::vector<CUdeviceptr> kept = make_comb(sim, 16, legacy);
    for (const CUstream stream : {legacy, unordered, sim.stream(), sim.stream(false)}) {
        const CUdeviceptr large = sim.alloc(32 * MiB, stream);
        CHECK(sim.held() == 64 * MiB);
        sim.touch(large, 32 * MiB, stream == unordered ? legacy : stream);
        sim.free(large, unordered);
        std::vector<CUdeviceptr> teeth;
        for (int i = 0; i < 16; i++) {
            teeth.push_back(sim.alloc(2 * MiB, stream));
        }
        for (const CUdeviceptr ptr : teeth) {
            sim.free(ptr, stream);
        }
    }
    for (const CUdeviceptr ptr : kept) {
        sim.touch(ptr, 2 * MiB, legacy);
        sim.free(ptr, legacy);
    }
    CHECK(sim.races() == 0);
}

TEST_CASE("pages: those that lie side by side are unmapped in one call") {
    Simulation sim("growth=vmm,slack=0");
    const CUdeviceptr first = sim.alloc(16 * MiB, legacy);
    sim.alloc(2 * MiB, legacy);
    const CUdeviceptr second = sim.alloc(8 * MiB, legacy);
    sim.alloc(2 * MiB, legacy);
    sim.free(first, legacy);
    sim.free(second, legacy);
    synchronize(sim);
    const uint64_t unmapped = cuda().call_count("cuMemUnmap");
    sim.touch(sim.alloc(24 * MiB, legacy), 24 * MiB, legacy);
    CHECK(sim.held() == 28 * MiB);
    CHECK(cuda().call_count("cuMemUnmap") <= unmapped + 2);
}

TEST_CASE("pages: inside a deferred section a large block takes free pages, and none goes back") {
    Simulation sim("growth=vmm,slack=0");
    make_comb(sim, 16, legacy);
    synchronize(sim);
    sim.trim(64 * MiB); // queries complete frees, for drivers that answer late
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    const uint64_t released = cuda().call_count("cuMemRelease");
    const CUdeviceptr large = sim.alloc(32 * MiB, legacy);
    sim.touch(large, 32 * MiB, legacy);
    CHECK(sim.held() == 64 * MiB);
    sim.free(large, legacy);
    synchronize(sim);
    sim.trim(64 * MiB);
    sim.touch(sim.alloc(48 * MiB, legacy), 48 * MiB, legacy);
    CHECK(sim.held() == 80 * MiB);
    CHECK(cuda().call_count("cuMemRelease") == released);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.races() == 0);
}

TEST_CASE("pages: what a graph may use is not taken apart") {
    Simulation sim("growth=vmm,max=64MiB");
    const CUstream stream = sim.stream();
    cuda().cuCtxPushCurrent(sim.context);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    for (int i = 0; i < 4; i++) {
        const CUdeviceptr ptr = sim.alloc(8 * MiB, stream);
        REQUIRE(cuda().cuMemsetD8Async(ptr, 1, 8 * MiB, stream) == CUDA_SUCCESS);
        sim.free(ptr, stream);
    }
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuda().cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(60 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
    const CUdeviceptr other = sim.alloc(40 * MiB, legacy);
    sim.touch(other, 40 * MiB, legacy);
    CHECK(cuda().cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    cuda().cuStreamSynchronize(stream);
    cuda().cuGraphExecDestroy(exec);
    cuda().cuGraphDestroy(graph);
    sim.free(other, legacy);
    const CUdeviceptr all = sim.alloc(60 * MiB, legacy);
    sim.touch(all, 60 * MiB, legacy);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

TEST_CASE("pages: a trim returns single pages, down to what it is told to keep") {
    Simulation sim("growth=vmm,initial=8MiB");
    CHECK(sim.held() == 8 * MiB);
    const std::vector<CUdeviceptr> kept = make_comb(sim, 16, legacy);
    synchronize(sim);
    sim.trim(16 * MiB); // the events that a first trim leaves
    synchronize(sim);
    sim.trim(16 * MiB);
    CHECK(sim.held() == 48 * MiB);
    sim.trim();
    CHECK(sim.held() == 32 * MiB);
    CHECK(sim.stats().reserved_bytes == 32 * MiB);
    REQUIRE(pool().reset(sim.manager) == EMM_OK);
    CHECK(sim.held() == 0);
    CHECK(sim.free(kept.front(), legacy) == EMM_E_NOT_OWNED);
    sim.free(sim.alloc(5 * MiB, legacy), legacy);
}

TEST_CASE("pages: a peer reaches what is mapped and what will be") {
    Simulation sim("growth=vmm");
    const CUdeviceptr before = sim.alloc(6 * MiB, legacy);
    CHECK(access_of(1, before) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
    const CUdeviceptr after = sim.alloc(64 * MiB, legacy);
    CHECK(access_of(1, before) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(access_of(1, after + 62 * MiB) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_NONE) == EMM_OK);
    CHECK(access_of(1, after) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(access_of(0, after) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_CASE("pages: a change of access that the driver refuses in part changes nothing") {
    Simulation sim("growth=vmm");
    const CUdeviceptr large = sim.alloc(64 * MiB, legacy), small = sim.alloc(4 * KiB, legacy);
    const auto change_in_vain = [&](uint32_t flags) {
        cuda().fail("cuMemSetAccess@2");
        CHECK(pool().set_access(sim.manager, 1, flags) == EMM_E_DRIVER);
        cuda().fail("");
    };
    const auto peer_has = [&](unsigned long long flags) {
        CHECK(access_of(1, large) == flags);
        CHECK(access_of(1, small) == flags);
    };
    change_in_vain(EMM_ACCESS_READ_WRITE);
    peer_has(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK(access_of(1, sim.alloc(96 * MiB, legacy)) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
    change_in_vain(EMM_ACCESS_NONE);
    peer_has(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(access_of(1, sim.alloc(128 * MiB, legacy)) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_CASE("pages: where the driver refuses many addresses, fewer do") {
    for (const size_t most : {4096 * MiB, 100 * MiB, 64 * MiB}) {
        Simulation sim("growth=vmm");
        most_addresses = most;
        CUdeviceptr ptr = 0, other = 0;
        CHECK(sim.try_alloc(63 * MiB, legacy, ptr) == EMM_OK);
        CHECK(sim.try_alloc(63 * MiB, legacy, other) == EMM_OK);
        CHECK(sim.free(ptr, legacy) == EMM_OK);
        CHECK(sim.try_alloc(most + 1, legacy, ptr) == EMM_E_OUT_OF_MEMORY);
        most_addresses = SIZE_MAX;
        CHECK(sim.free(other, legacy) == EMM_OK);
    }
}

namespace {

// Requests of many sizes, most of which are freed, on a driver that refuses one call.
void work_beside_failing(const std::string &call, bool deferred) {
    Simulation sim("growth=vmm,max=64MiB");
    const CUstream stream = sim.stream();
    CHECK(pool().defer_cleanup(sim.manager, deferred) == EMM_OK);
    cuda().fail(call.c_str());
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 60; i++) {
        CUdeviceptr ptr = 0;
        const size_t size = size_t(1 + i % 7) * 3 * MiB;
        if (sim.try_alloc(size, stream, ptr) == EMM_OK) {
            sim.touch(ptr, size, stream);
            blocks.push_back(ptr);
        }
        if (blocks.size() > 3) {
            sim.free(blocks[size_t(i) % 3], i % 2 ? stream : unordered);
            blocks.erase(blocks.begin() + i % 3);
        }
    }
    cuda().fail("");
    INFO(call << ", deferred " << deferred << ": " << last_failure().text);
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, stream);
    }
    synchronize(sim);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    sim.free(sim.alloc(60 * MiB, stream), stream);
    CHECK(sim.stats().live_count == 0);
    CHECK(sim.races() == 0);
}

} // namespace

TEST_CASE("pages: a driver call that fails loses no memory and no order") {
    for (const char *call :
         {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"}) {
        for (const char *which : {"@1", "@3", "@9"}) {
            for (const bool deferred : {false, true}) {
                work_beside_failing(std::string(call) + which, deferred);
            }
        }
    }
}

namespace {

// Another program's requests: each time that the pool asks the driver for pages, they take the
// neighbouring memory.
Simulation *grabbed_from = nullptr;
std::vector<CUdeviceptr> grabbed;
uint64_t mapped_before = 0;

void grab() {
    const uint64_t mapped = cuda().call_count("cuMemMap");
    if (mapped != mapped_before) {
        mapped_before = mapped;
        const size_t halves[] = {8, 4}; // of a MiB
        const size_t wanted = grabbed.empty() ? 3 : halves[(grabbed.size() + 1) % 2];
        grabbed.push_back(grabbed_from->alloc(wanted * MiB / 2, legacy));
    }
}

} // namespace

TEST_CASE("pages: memory is found though others always take what lies beside the new pages") {
    Simulation sim("growth=vmm");
    const CUdeviceptr first = sim.alloc(5 * MiB / 2, legacy);
    grabbed_from = &sim;
    mapped_before = 0;
    before_mem_create = grab;
    CUdeviceptr wanted = 0;
    const emm_status status = sim.try_alloc(5 * MiB, legacy, wanted);
    before_mem_create = nullptr;
    INFO(last_failure().text);
    CHECK(status == EMM_OK);
    CHECK(grabbed.size() == 4);
    for (const CUdeviceptr ptr : grabbed) {
        sim.free(ptr, legacy);
    }
    grabbed.clear();
    sim.free(first, legacy);
    if (status == EMM_OK) {
        sim.free(wanted, legacy);
    }
}
