// Behaviour: requests while memory is short, stage by stage, and the state after a refusal.
#include "simulation.h"

using namespace pool_test;

TEST_CASE("max is never exceeded, and the refusal says what there is") {
    Simulation sim("max=10MiB");
    std::vector<CUdeviceptr> blocks;
    CUdeviceptr ptr = 0;
    while (sim.try_alloc(MiB, legacy, ptr) == EMM_OK) {
        blocks.push_back(ptr);
    }
    CHECK(blocks.size() == 10);
    CHECK(sim.held() == 10 * MiB);
    CHECK_THAT(last_failure().text, ContainsSubstring("10485760 bytes live"));
    CHECK_THAT(last_failure().text, ContainsSubstring("max 10485760"));
    CHECK_THAT(last_failure().text, ContainsSubstring("largest free block 0"));
    CHECK(sim.stats().failures == 1);
    for (const CUdeviceptr block : blocks) {
        sim.free(block, legacy);
    }
    CHECK(sim.try_alloc(size_t(1) << 60, legacy, ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(sim.try_alloc(~size_t(0), legacy, ptr) == EMM_E_OUT_OF_MEMORY);
    CHECK(sim.alloc(10 * MiB, legacy) != 0);
}

TEST_CASE("the refusal counts as live what a thread has handed out by itself") {
    Simulation sim("max=10MiB");
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> blocks(1000);
    for (CUdeviceptr &block : blocks) {
        block = sim.alloc(4 * KiB, stream);
    }
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(9 * MiB, stream, none) == EMM_E_OUT_OF_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("pool: 4096000 bytes live"));
    for (const CUdeviceptr block : blocks) {
        sim.free(block, stream, 4 * KiB);
    }
}

TEST_CASE("the last bytes below max serve small requests, slab or not") {
    Simulation sim("max=2MiB");
    const CUdeviceptr most = sim.alloc(2 * MiB - 1024, legacy);
    const CUdeviceptr a = sim.alloc(300, legacy), b = sim.alloc(300, legacy);
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(300, legacy, none) == EMM_E_OUT_OF_MEMORY);
    CHECK(none == 0);
    sim.free(a, legacy, 300);
    sim.free(b, legacy, 300);
    sim.free(most, legacy);
}

TEST_CASE("reclaim: memory known to be complete comes before waiting") {
    Simulation sim("max=20MiB");
    const CUstream a = sim.stream(), b = sim.stream();
    const CUdeviceptr ptr = sim.alloc(20 * MiB, a);
    sim.free(ptr, a);
    size_t released = 0;
    CHECK(pool().trim(sim.manager, 20 * MiB, &released) == EMM_OK); // records an event behind it
    cuda().cuStreamSynchronize(a);
    const uint64_t waits = cuda().call_count("cuStreamWaitEvent");
    CHECK(sim.alloc(20 * MiB, b) == ptr);
    CHECK(cuda().call_count("cuStreamWaitEvent") == waits);
}

namespace {

// Memory that another program, or another library, has taken from the device.
class Occupied {
public:
    Occupied(const Simulation &sim, size_t bytes) {
        cuda().cuCtxPushCurrent(sim.context);
        REQUIRE(cuda().cuMemAlloc(&ptr_, bytes) == CUDA_SUCCESS);
        CUcontext popped = nullptr;
        cuda().cuCtxPopCurrent(&popped);
    }
    ~Occupied() { CHECK(cuda().cuMemFree(ptr_) == CUDA_SUCCESS); }
    Occupied(const Occupied &) = delete;
    Occupied &operator=(const Occupied &) = delete;

private:
    CUdeviceptr ptr_ = 0;
};

const size_t GiB = 1024 * MiB; // of which the device has 8

uint64_t creations() {
    return cuda().call_count("cuMemAlloc") + cuda().call_count("cuMemCreate");
}

} // namespace

TEST_CASE("a request beyond the device or max asks the driver for nothing and moves no peak") {
    for (const char *options :
         {"growth=segment", "growth=vmm", "max=64MiB", "growth=vmm,max=64MiB"}) {
        Simulation sim(options);
        const CUstream stream = sim.stream();
        sim.free(sim.alloc(32 * MiB, stream), stream);
        const size_t most =
            std::string(options).find("max") == std::string::npos ? 8 * GiB : 64 * MiB;
        for (const size_t size : {most + 1, 200 * GiB, size_t(1) << 50, ~size_t(0)}) {
            const emm_stats before = sim.stats();
            const uint64_t asked = creations(), held = sim.held();
            CUdeviceptr none = 0;
            CHECK(sim.try_alloc(size, stream, none) == EMM_E_OUT_OF_MEMORY);
            CHECK_THAT(last_failure().text, ContainsSubstring(std::to_string(most) + " bytes"));
            CHECK(none == 0);
            CHECK(creations() == asked);
            CHECK(sim.held() == held);
            const emm_stats after = sim.stats();
            CHECK(after.peak_reserved_bytes == before.peak_reserved_bytes);
            CHECK(after.peak_live_bytes == before.peak_live_bytes);
            CHECK(after.failures == before.failures + 1);
        }
    }
}

TEST_CASE("a request that fails on the way gives back what it took and moves no peak") {
    for (const char *options : {"growth=segment", "growth=vmm"}) {
        Simulation sim(options);
        const Occupied other(sim, 6 * GiB);
        const CUdeviceptr kept = sim.alloc(100 * MiB, legacy);
        const uint64_t held = sim.held();
        const emm_stats before = sim.stats();
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(4 * GiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
        CHECK(sim.held() == held);
        const emm_stats after = sim.stats();
        CHECK(after.reserved_bytes == before.reserved_bytes);
        CHECK(after.peak_reserved_bytes == before.peak_reserved_bytes);
        sim.free(kept, legacy);
    }
}

TEST_CASE("a driver that runs out in the middle of a request gets back what it gave for it") {
    for (const char *fault : {"cuMemCreate@5+", "cuMemMap@5+", "cuMemSetAccess@1+"}) {
        Simulation sim("growth=vmm");
        cuda().fail(fault);
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(100 * MiB, legacy, none) != EMM_OK);
        cuda().fail("");
        CHECK(sim.held() == 0);
        CHECK(sim.stats().reserved_bytes == 0);
        CHECK(sim.stats().peak_reserved_bytes == 0);
    }
}

TEST_CASE("a pool stays as tight after a request that failed as before it") {
    for (const char *options : {"growth=segment", "growth=vmm"}) {
        Simulation sim(options);
        const CUstream stream = sim.stream();
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(200 * GiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        {
            const Occupied other(sim, 6 * GiB);
            CHECK(sim.try_alloc(7 * GiB, stream, none) == EMM_E_OUT_OF_MEMORY);
        }
        for (const size_t size : {size_t(64), size_t(96), size_t(128), size_t(160)}) {
            sim.free(sim.alloc(size * MiB, stream), stream);
            cuda().cuStreamSynchronize(stream);
        }
        CHECK(sim.held() <= 168 * MiB);
    }
}

TEST_CASE("pages: where the driver has no more, what is free elsewhere has to do") {
    Simulation sim("growth=vmm");
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 100; i++) {
        blocks.push_back(sim.alloc(10 * MiB, legacy));
    }
    for (int i = 0; i < 100; i += 2) {
        sim.free(blocks[size_t(i)], legacy);
    }
    const Occupied other(sim, 8 * GiB - sim.held());
    cuda().cuStreamSynchronize(legacy);
    blocks.push_back(sim.alloc(500 * MiB, legacy));
    CHECK(sim.stats().reserved_bytes == 1000 * MiB);
}

TEST_CASE("reclaim: idle segments go back when the driver has no more of the right size") {
    Simulation sim("max=32MiB");
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 16; i++) {
        blocks.push_back(sim.alloc(2 * MiB, legacy));
    }
    for (const CUdeviceptr ptr : blocks) {
        sim.free(ptr, legacy);
    }
    const CUdeviceptr large = sim.alloc(30 * MiB, legacy);
    CHECK(sim.held() <= 32 * MiB);
    sim.touch(large, 30 * MiB, legacy);
    CHECK(sim.races() == 0);
}

TEST_CASE("a refusal by max or host_max names no result of the driver") {
    for (const char *const growth : {"growth=vmm", "growth=segment"}) {
        CAPTURE(growth);
        Simulation sim(std::string(growth) + ",max=16MiB,host_max=4MiB");
        sim.alloc(12 * MiB, legacy);
        for (const size_t size : {8 * MiB, 64 * MiB}) {
            CUdeviceptr none = 0;
            CHECK(sim.try_alloc(size, legacy, none) == EMM_E_OUT_OF_MEMORY);
            CHECK(last_failure().driver_result == 0);
            void *memory = nullptr;
            CHECK(pool().memhostalloc(sim.manager, size, 0, &memory, &none) ==
                  EMM_E_OUT_OF_HOST_MEMORY);
            CHECK(last_failure().driver_result == 0);
        }
    }
}

TEST_CASE("reclaim: the driver's own exhaustion is met the same way") {
    Simulation sim;
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 4; i++) {
        blocks.push_back(sim.alloc(1900 * MiB, legacy));
    }
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(1900 * MiB, legacy, none) == EMM_E_OUT_OF_MEMORY);
    CHECK(last_failure().driver_result == CUDA_ERROR_OUT_OF_MEMORY);
    sim.free(blocks[1], legacy);
    sim.free(blocks[2], legacy);
    blocks.push_back(sim.alloc(3000 * MiB, legacy));
}

TEST_CASE("what was held before grows again without a question to other streams") {
    Simulation sim;
    const CUstream a = sim.stream(), b = sim.stream();
    sim.free(sim.alloc(64 * MiB, a), a);
    cuda().cuStreamSynchronize(a);
    sim.trim();
    const CUdeviceptr first = sim.alloc(MiB, a), second = sim.alloc(MiB, a);
    sim.free(first, a);
    sim.free(second, a);
    const uint64_t records = cuda().call_count("cuEventRecord");
    sim.alloc(MiB, b);
    CHECK(cuda().call_count("cuEventRecord") == records);
    CHECK(sim.held() == 4 * MiB);
}

TEST_CASE("for a small segment the smallest idle one that is enough goes back") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const CUdeviceptr large = sim.alloc(40 * MiB, stream), lesser = sim.alloc(4 * MiB, stream);
    sim.free(large, stream);
    sim.free(lesser, stream);
    pool().defer_cleanup(sim.manager, 1); // so that no mode is exchanged yet
    sim.alloc(MiB, stream);
    sim.alloc(MiB, stream);
    pool().defer_cleanup(sim.manager, 0);
    cuda().cuStreamSynchronize(stream);
    CHECK(sim.held() == 46 * MiB);
    sim.alloc(MiB, stream);
    CHECK(sim.held() == 44 * MiB);
}

TEST_CASE("reclaim: the pool waits a while for idle memory rather than hold more than ever") {
    Simulation sim;
    const CUstream stream = sim.stream();
    const CUdeviceptr first = sim.alloc(64 * MiB, stream);
    sim.touch(first, 64 * MiB, stream);
    sim.free(first, stream);
    sim.alloc(128 * MiB, stream);
    CHECK(sim.held() == (work_takes_ages() ? 192 : 128) * MiB);
}

TEST_CASE("pages: pending pieces get a second place also where the request needs new addresses") {
    Simulation sim("growth=vmm"); // the pool begins with 4 GiB of addresses
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 10; i++) {
        blocks.push_back(sim.alloc(256 * MiB, stream));
        sim.touch(blocks.back(), 4 * KiB, stream);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        sim.free(blocks[i], stream);
    }
    sim.alloc(1700 * MiB, stream);
    const uint64_t needed = (5 * 256 + 1700) * MiB;
    CHECK(sim.held() <= needed + needed / 36);
}

TEST_CASE("a wait for idle memory ends, though its work waits for the program") {
    Simulation sim;
    const CUstream stream = sim.stream();
    for (size_t i = 0; i < 20; i++) {
        const size_t size = (i + 2) * 4 * MiB;
        const CUdeviceptr block = sim.alloc(size, stream);
        sim.touch(block, size, stream);
        sim.free(block, stream);
    }
    CHECK(sim.races() == 0);
    CHECK(sim.held() >= 21 * 4 * MiB);
}

TEST_CASE("a huge request has its measure when the pool holds more than it needs") {
    Simulation sim;
    const CUstream stream = sim.stream();
    pool().defer_cleanup(sim.manager, 1); // so that no mode is exchanged yet
    sim.free(sim.alloc(256 * MiB, stream), stream);
    sim.free(sim.alloc(320 * MiB, stream), stream);
    pool().defer_cleanup(sim.manager, 0);
    cuda().cuStreamSynchronize(stream);
    CHECK(sim.held() == 576 * MiB);
    sim.alloc(64 * MiB, stream);
    CHECK(sim.held() == 384 * MiB);
}

TEST_CASE("a huge request is cut from the initial memory") {
    Simulation sim("initial=1GiB");
    const uint64_t records = cuda().call_count("cuEventRecord");
    sim.alloc(64 * MiB, sim.stream());
    CHECK(sim.held() == 1024 * MiB);
    CHECK(cuda().call_count("cuEventRecord") == records);
}

TEST_CASE("reclaim: quarantined memory is waited for when nothing else is left") {
    for (const CUstream taker : {unordered, legacy}) {
        Simulation sim("max=8MiB");
        const CUstream busy = sim.stream(false);
        for (int i = 0; i < 10; i++) {
            const CUdeviceptr ptr = sim.alloc(6 * MiB, taker);
            sim.touch(ptr, 6 * MiB, busy);
            sim.free(ptr, unordered);
        }
        CHECK(sim.races() == 0);
    }
}

TEST_CASE("reclaim: a large block begins in what small ones have left of a page") {
    Simulation sim("max=6MiB,growth=vmm");
    const CUdeviceptr large = sim.alloc(2 * MiB, legacy);
    const CUdeviceptr small = sim.alloc(512 * KiB, legacy);
    const CUdeviceptr most = sim.alloc(3 * MiB, legacy);
    CHECK(most == small + 512 * KiB);
    CHECK(sim.held() == 6 * MiB);
    for (const CUdeviceptr block : {large, small, most}) {
        sim.free(block, legacy);
    }
    CHECK(sim.alloc(6 * MiB, legacy) != 0);
}

TEST_CASE("reclaim: free slots of another stream's slabs serve a request") {
    const char *growth = GENERATE("vmm", "segment");
    Simulation sim(std::string("max=2MiB,growth=") + growth);
    const CUstream a = sim.stream(), b = sim.stream();
    std::vector<CUdeviceptr> slots(2 * MiB / (32 * KiB));
    for (CUdeviceptr &slot : slots) {
        slot = sim.alloc(32 * KiB, a);
        sim.touch(slot, 32 * KiB, a);
    }
    for (size_t i = 0; i < slots.size(); i += 2) {
        sim.free(slots[i], a);
    }
    for (size_t i = 0; i < slots.size(); i += 2) {
        slots[i] = sim.alloc(32 * KiB, b);
        sim.touch(slots[i], 32 * KiB, b);
    }
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(32 * KiB, b, none) == EMM_E_OUT_OF_MEMORY);
    for (size_t i = 0; i < slots.size(); i++) {
        sim.free(slots[i], i % 2 == 0 ? b : a);
    }
}

TEST_CASE("reclaim: a free slot of a larger class serves a request") {
    Simulation sim("max=2MiB");
    const CUstream stream = sim.stream();
    std::vector<CUdeviceptr> slots(2 * MiB / (32 * KiB));
    for (CUdeviceptr &slot : slots) {
        slot = sim.alloc(32 * KiB, stream);
    }
    sim.free(slots[5], stream);
    slots[5] = sim.alloc(512, stream);
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(512, stream, none) == EMM_E_OUT_OF_MEMORY);
    for (const CUdeviceptr slot : slots) {
        sim.free(slot, stream);
    }
    CHECK(sim.alloc(2 * MiB, stream) != 0);
}

TEST_CASE("reclaim: inside a capture nothing is waited for") {
    Simulation sim("max=8MiB");
    const CUstream stream = sim.stream(), other = sim.stream();
    const CUdeviceptr ptr = sim.alloc(8 * MiB, other);
    sim.touch(ptr, 8 * MiB, other);
    sim.free(ptr, unordered);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    const uint64_t waits = cuda().call_count("cuEventSynchronize");
    CUdeviceptr none = 0;
    sim.try_alloc(4 * MiB, stream, none);
    CHECK(cuda().call_count("cuEventSynchronize") == waits);
    CUgraph graph = nullptr;
    CHECK(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    cuda().cuGraphDestroy(graph);
}

TEST_CASE("a driver call that fails once costs nothing but that call") {
    for (const char *fault : {"cuMemAlloc@1", "cuEventRecord@1", "cuCtxRecordEvent@1",
                              "cuStreamWaitEvent@1", "cuEventCreate@1", "cuStreamGetId@1",
                              "cuStreamIsCapturing@1", "cuCtxPushCurrent@1", "cuEventQuery@1"}) {
        Simulation sim("max=16MiB");
        const CUstream a = sim.stream(), b = sim.stream(false);
        cuda().fail(fault);
        for (int i = 0; i < 20; i++) {
            for (const CUstream stream : {a, b, unordered}) {
                CUdeviceptr ptr = 0;
                if (sim.try_alloc(7 * MiB, stream, ptr) == EMM_OK) {
                    CHECK(sim.free(ptr, stream) == EMM_OK);
                } else {
                    CHECK(ptr == 0);
                }
            }
        }
        cuda().fail("");
        CHECK(sim.stats().live_count == 0);
        CHECK(sim.races() == 0);
    }
}

namespace {

decltype(&::cuMemAlloc) aligned_alloc_entry = nullptr;
decltype(&::cuMemFree) aligned_free_entry = nullptr;

// A driver whose memory begins in the middle of 2 MiB.
CUresult CUDAAPI ragged_alloc(CUdeviceptr *ret_ptr, size_t size) {
    const CUresult result = aligned_alloc_entry(ret_ptr, size + 2 * MiB);
    *ret_ptr += result == CUDA_SUCCESS ? MiB : 0;
    return result;
}

CUresult CUDAAPI ragged_free(CUdeviceptr ptr) {
    return aligned_free_entry(ptr - MiB);
}

emm_function ragged_entry(const char *name, int32_t version) {
    const emm_function found = host().driver(name, version);
    if (std::string(name) == "cuMemAlloc") {
        aligned_alloc_entry = reinterpret_cast<decltype(aligned_alloc_entry)>(found);
        return reinterpret_cast<emm_function>(&ragged_alloc);
    }
    if (std::string(name) == "cuMemFree") {
        aligned_free_entry = reinterpret_cast<decltype(aligned_free_entry)>(found);
        return reinterpret_cast<emm_function>(&ragged_free);
    }
    return found;
}

} // namespace

TEST_CASE("a driver that does not align its memory serves requests all the same") {
    for (const char *options :
         {"growth=segment", "growth=segment,max=10MiB", "growth=segment,max=8MiB"}) {
        CAPTURE(options);
        emm_host ragged = host();
        ragged.driver = ragged_entry;
        Simulation sim(options, ragged);
        const CUstream stream = sim.stream();
        const CUdeviceptr ptr = sim.alloc(4 * MiB, stream);
        CHECK(ptr % (2 * MiB) == 0);
        sim.touch(ptr, 4 * MiB, stream);
    }
}
