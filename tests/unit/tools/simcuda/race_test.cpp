// Uses of memory that are not ordered are found, and ordered ones are left alone.
#include "cuda_driver.h"
#include "in_child.h"

#include <thread>

namespace {

// A device on which races are counted.
struct Counting {
    Counting() { REQUIRE(cu().configure("race=count") == CUDA_SUCCESS); }
};
struct Racing : Counting, Device {};

uint64_t races() {
    simcuda_counters counters = {};
    counters.struct_size = sizeof counters;
    cu().get_counters(&counters);
    return counters.races;
}

void write(CUdeviceptr address, size_t size, CUstream stream) {
    REQUIRE(cu().cuMemsetD8Async(address, 1, size, stream) == CUDA_SUCCESS);
}

void read(CUdeviceptr address, size_t size, CUstream stream) {
    const simcuda_range range = {address, size, 0, 0};
    REQUIRE(cu().launch(stream, nullptr, nullptr, &range, 1) == CUDA_SUCCESS);
}

void order(CUstream first, CUstream second) {
    const Event event;
    REQUIRE(cu().cuEventRecord(event, first) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("two streams that write the same bytes race, and different bytes do not") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    write(block, 100, one);
    write(block + 100, 100, two);
    CHECK(races() == 0);
    write(block + 50, 100, two);
    CHECK(races() == 1);
    CHECK_THAT(cu().last_race(), ContainsSubstring("cuMemsetD8Async"));
    CHECK_THAT(cu().last_race(), ContainsSubstring("not ordered"));
}

TEST_CASE("a race tells streams of one handle apart by their ids") {
    const Racing device;
    const Block block(4096);
    CUcontext context = nullptr;
    unsigned long long ids[2] = {};
    REQUIRE(cu().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    std::thread([&] {
        cu().cuCtxSetCurrent(context);
        cu().cuStreamGetId(CU_STREAM_PER_THREAD, &ids[0]);
        cu().cuMemsetD8Async(block, 1, 100, CU_STREAM_PER_THREAD);
    }).join();
    write(block, 100, CU_STREAM_PER_THREAD);
    REQUIRE(cu().cuStreamGetId(CU_STREAM_PER_THREAD, &ids[1]) == CUDA_SUCCESS);
    CHECK(ids[0] != ids[1]);
    for (const unsigned long long id : ids) {
        CHECK_THAT(cu().last_race(), ContainsSubstring("stream 0x2 of id " + std::to_string(id)));
    }
}

TEST_CASE("reads do not race with reads, though with a later write") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    read(block, 100, one);
    read(block, 100, two);
    CHECK(races() == 0);
    write(block, 100, one);
    CHECK(races() == 1);
}

TEST_CASE("an event puts two streams in order, work behind it is not covered") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    write(block, 100, one);
    order(one, two);
    write(block, 100, two);
    CHECK(races() == 0);
    write(block + 200, 100, one);
    write(block + 200, 100, two);
    CHECK(races() == 1);
}

TEST_CASE("order is passed on through a third stream") {
    const Racing device;
    const Stream one, two, three;
    const Block block(4096);
    write(block, 100, one);
    order(one, two);
    order(two, three);
    write(block, 100, three);
    CHECK(races() == 0);
}

TEST_CASE("what the host has seen complete comes before all that follows, on any thread") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    const Event event;
    write(block, 100, one);
    REQUIRE(cu().cuEventRecord(event, one) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventQuery(event) == CUDA_SUCCESS);
    std::thread([&] { cu().cuMemsetD8Async(block, 1, 100, two); }).join();
    CHECK(races() == 0);
}

TEST_CASE("work that merely happens to have run orders nothing") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    write(block, 100, one);
    size_t free = 0, total = 0;
    REQUIRE(cu().cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    write(block, 100, two);
    CHECK(races() == 1);
}

TEST_CASE("the legacy stream orders blocking streams, and not others") {
    const Racing device;
    const Stream one(CU_STREAM_DEFAULT), two(CU_STREAM_DEFAULT), apart(CU_STREAM_NON_BLOCKING);
    const Block block(4096);
    write(block, 100, one);
    write(block, 100, nullptr);
    write(block, 100, two);
    CHECK(races() == 0);
    write(block, 100, apart);
    CHECK(races() == 1);
}

TEST_CASE("a context's event orders all of its streams") {
    const Racing device;
    const Stream one, two, last;
    const Block block(4096);
    const Event event;
    write(block, 100, one);
    write(block + 100, 100, two);
    REQUIRE(cu().record_context(device.context, event) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(last, event, 0) == CUDA_SUCCESS);
    write(block, 200, last);
    CHECK(races() == 0);
}

TEST_CASE("cuMemFree ends all use, so that a new owner of the memory is safe") {
    const Racing device;
    const Stream one, two;
    CUdeviceptr first = 0, second = 0;
    REQUIRE(cu().cuMemAlloc(&first, 4096) == CUDA_SUCCESS);
    write(first, 4096, one);
    REQUIRE(cu().cuMemFree(first) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAlloc(&second, 4096) == CUDA_SUCCESS);
    CHECK(second == first);
    write(second, 4096, two);
    CHECK(races() == 0);
    REQUIRE(cu().cuMemFree(second) == CUDA_SUCCESS);
}

TEST_CASE("a stream-ordered free must be ordered after uses on other streams") {
    const Racing device;
    const Stream one, two;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, one) == CUDA_SUCCESS);
    order(one, two);
    write(address, 100, two);
    REQUIRE(cu().cuMemFreeAsync(address, one) == CUDA_SUCCESS);
    CHECK(races() == 1);
    CHECK_THAT(cu().last_race(), ContainsSubstring("cuMemFreeAsync"));
}

TEST_CASE("memory that a pool hands from stream to stream is in order") {
    const Racing device;
    const Stream one, two;
    CUdeviceptr first = 0, second = 0;
    REQUIRE(cu().cuMemAllocAsync(&first, 1 << 20, one) == CUDA_SUCCESS);
    write(first, 1 << 20, one);
    REQUIRE(cu().cuMemFreeAsync(first, one) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemAllocAsync(&second, 1 << 20, two) == CUDA_SUCCESS);
    write(second, 1 << 20, two);
    CHECK(races() == 0);
    REQUIRE(cu().cuMemFreeAsync(second, two) == CUDA_SUCCESS);
}

TEST_CASE("new pool memory is not ready for a stream that does not wait") {
    const Racing device;
    const Stream one, two;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuMemAllocAsync(&address, 4096, one) == CUDA_SUCCESS);
    write(address, 100, two);
    CHECK(races() >= 1);
}

TEST_CASE("a graph's parallel branches race, and its chains do not") {
    const Racing device;
    const Stream one, two;
    const Block block(4096);
    const Event fork, join;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    REQUIRE(cu().cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    write(block, 100, one);
    write(block, 100, one);
    REQUIRE(cu().cuEventRecord(fork, one) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(two, fork, 0) == CUDA_SUCCESS);
    write(block + 200, 100, one);
    write(block + 250, 100, two);
    REQUIRE(cu().cuEventRecord(join, two) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(one, join, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamEndCapture(one, &graph) == CUDA_SUCCESS);
    CHECK(races() == 0);
    REQUIRE(cu().cuGraphInstantiate(&executable, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphLaunch(executable, one) == CUDA_SUCCESS);
    CHECK(races() == 1);
    write(block, 4096, one);
    CHECK(races() == 1);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("a race aborts and says which uses") {
    const Ending ending = in_child([] {
        const Device device;
        const Stream one, two;
        const Block block(4096);
        write(block, 100, one);
        write(block, 100, two);
    });
    CHECK(ending.aborted);
    CHECK_THAT(ending.text, ContainsSubstring("simcuda: race: cuMemsetD8Async"));
}
