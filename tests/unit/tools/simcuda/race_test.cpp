// Unordered uses of memory are reported, and ordered ones are not.
#include "captures.h"
#include "in_child.h"

#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

// A device on which races are counted.
struct Counting {
    Counting() { REQUIRE(cu().configure("race=count") == CUDA_SUCCESS); }
};
struct Racing : Counting, Device {};

uint64_t races() {
    return counters().races;
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

// Stands for a kernel that writes.
void launch(decltype(&simcuda_launch) how, CUdeviceptr address, size_t size, CUstream stream) {
    const simcuda_range range = {address, size, 1, 0};
    REQUIRE(how(stream, nullptr, nullptr, &range, 1) == CUDA_SUCCESS);
}

// Physical memory, and addresses for it that come and go.
class Piece {
public:
    Piece() {
        CUmemAllocationProp wanted = {};
        wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        REQUIRE(cu().cuMemCreate(&handle_, size, &wanted, 0) == CUDA_SUCCESS);
    }
    ~Piece() { cu().cuMemRelease(handle_); }
    Piece(const Piece &) = delete;
    Piece &operator=(const Piece &) = delete;

    CUdeviceptr map() const {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        CUdeviceptr address = 0;
        REQUIRE(cu().cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemMap(address, size, 0, handle_, 0) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemSetAccess(address, size, &access, 1) == CUDA_SUCCESS);
        return address;
    }
    static void unmap(CUdeviceptr address) {
        REQUIRE(cu().cuMemUnmap(address, size) == CUDA_SUCCESS);
        REQUIRE(cu().cuMemAddressFree(address, size) == CUDA_SUCCESS);
    }
    static constexpr size_t size = 2 << 20;

private:
    CUmemGenericAllocationHandle handle_ = 0;
};

// One at two addresses.
struct TwoPlaces {
    ~TwoPlaces() {
        CHECK(cu().cuCtxSynchronize() == CUDA_SUCCESS);
        Piece::unmap(first);
        Piece::unmap(second);
    }
    Piece piece;
    CUdeviceptr first = piece.map(), second = piece.map();
};

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
    begin(one);
    write(block, 100, one);
    write(block, 100, one);
    REQUIRE(cu().cuEventRecord(fork, one) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(two, fork, 0) == CUDA_SUCCESS);
    write(block + 200, 100, one);
    write(block + 250, 100, two);
    REQUIRE(cu().cuEventRecord(join, two) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(one, join, 0) == CUDA_SUCCESS);
    const CUgraph graph = end(one);
    CHECK(races() == 0);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphLaunch(executable, one) == CUDA_SUCCESS);
    CHECK(races() == 1);
    write(block, 4096, one);
    CHECK(races() == 1);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("work through two addresses of a piece races unless it is in order") {
    const Racing device;
    const Stream one, two;
    const TwoPlaces places;
    write(places.first + 4096, 100, one);
    order(one, two);
    read(places.second + 4096, 100, two);
    CHECK(races() == 0);
    write(places.first + 8192, 100, one);
    read(places.second + 8192, 100, two);
    CHECK(races() == 1);
}

TEST_CASE("one kernel may read at two addresses of a piece, and not write at one of them") {
    const Racing device;
    const Stream stream;
    const TwoPlaces places;
    for (const uint32_t first_writes : {0, 1}) {
        const simcuda_range ranges[] = {{places.first, 100, first_writes, 0},
                                        {places.second, 100, 1 - first_writes, 0},
                                        {places.first + 4096, 100, 0, 0},
                                        {places.second + 4096, 100, 0, 0}};
        REQUIRE(cu().launch(stream, nullptr, nullptr, ranges, 4) == CUDA_SUCCESS);
        CHECK(races() == first_writes + 1);
        REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    }
    launch(cu().launch, places.first, 100, stream);
    const simcuda_range both[] = {{places.first, 100, 0, 0}, {places.first, 100, 1, 0}};
    REQUIRE(cu().launch(stream, nullptr, nullptr, both, 2) == CUDA_SUCCESS);
    CHECK(races() == 2);
}

TEST_CASE("a mapping ends beside work through another address of its piece") {
    const Racing device;
    const Stream stream;
    const Piece piece;
    const CUdeviceptr first = piece.map(), second = piece.map();
    write(first, Piece::size, stream);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    write(second, Piece::size, stream);
    Piece::unmap(first);
    CHECK(races() == 0);
    Piece::unmap(second);
    CHECK(races() == 1);
    CHECK_THAT(cu().last_race(), ContainsSubstring("cuMemUnmap"));
}

TEST_CASE("a mapping that ends before its work is a race, whatever has followed elsewhere") {
    const Racing device;
    const Stream stream;
    const Piece piece;
    const CUdeviceptr first = piece.map(), second = piece.map();
    write(first, Piece::size, stream);
    write(second, Piece::size, stream);
    Piece::unmap(first);
    CHECK(races() == 1);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    Piece::unmap(second);
    CHECK(races() == 1);
}

TEST_CASE("a programmatic launch misses what kernels in flight write at another address") {
    const Racing device;
    const Stream stream;
    const TwoPlaces places;
    const auto [first, second] = std::pair(places.first, places.second);
    launch(cu().launch, first, 100, stream);
    launch(cu().launch_programmatic, first, 100, stream);
    launch(cu().launch, second, 100, stream);
    CHECK(races() == 0);
    launch(cu().launch_programmatic, first, 100, stream);
    CHECK(races() == 1);
    CHECK_THAT(cu().last_race(), ContainsSubstring("began before the end"));

    const Event event;
    launch(cu().launch, first + 4096, 100, stream);
    launch(cu().launch_programmatic, first + 8192, 100, stream);
    REQUIRE(cu().cuEventRecord(event, stream) == CUDA_SUCCESS);
    CHECK(races() == 1);
    launch(cu().launch_programmatic, second + 4096, 100, stream);
    CHECK(races() == 2);
}

TEST_CASE("a programmatic launch sees what has ended, at any address") {
    const Racing device;
    const Stream stream, other;
    const TwoPlaces places;
    const auto [first, second] = std::pair(places.first, places.second);
    launch(cu().launch, first, 100, stream);
    launch(cu().launch, first + 4096, 100, stream);
    launch(cu().launch_programmatic, second, 100, stream); // the kernel before is another one
    write(first, 100, stream);
    launch(cu().launch_programmatic, second, 100, stream); // no kernel to wait for
    launch(cu().launch, first + 8192, 100, other);
    order(other, stream);
    launch(cu().launch_programmatic, second + 8192, 100, stream);
    launch(cu().launch, first, 100, stream);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    launch(cu().launch_programmatic, second, 100, stream);
    CHECK(races() == 0);
}

TEST_CASE("a programmatic launch in a graph misses what the node before it writes elsewhere") {
    const Racing device;
    const Stream stream;
    const TwoPlaces places;
    const auto [first, second] = std::pair(places.first, places.second);
    launch(cu().launch, second, 100, stream);
    begin(stream);
    launch(cu().launch_programmatic, first, 100, stream); // a graph begins behind all earlier work
    launch(cu().launch, second, 100, stream);
    launch(cu().launch_programmatic, first, 100, stream);
    const CUgraph graph = end(stream);
    const CUgraphExec executable = instantiate(graph);
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    CHECK(races() == 1);
    launch(cu().launch_programmatic, second, 100, stream); // and ends before all later work
    CHECK(races() == 1);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
}

namespace {

enum class Fault { none, no_event, unmaps_early, programmatic };

// Hands one piece from stream to stream, each time at a new address, as an allocator without waits
// does. Ends an address once the CPU has seen the end of its work.
uint64_t races_of(Fault fault, unsigned seed) {
    struct Old {
        std::unique_ptr<Event> after;
        CUdeviceptr address;
    };
    const uint64_t before = races();
    const Stream streams[3];
    const Piece piece;
    std::mt19937 random(seed);
    std::vector<Old> old;
    CUdeviceptr address = piece.map();
    CUstream user = streams[0];
    for (int step = 0; step < 200; ++step) {
        const CUstream next = streams[random() % 3];
        const bool faulty = random() % 10 == 0;
        launch(fault == Fault::programmatic && faulty ? cu().launch_programmatic : cu().launch,
               address, Piece::size, user);
        old.push_back({std::make_unique<Event>(), address});
        REQUIRE(cu().cuEventRecord(*old.back().after, user) == CUDA_SUCCESS);
        if (next != user && !(fault == Fault::no_event && faulty)) {
            REQUIRE(cu().cuStreamWaitEvent(next, *old.back().after, 0) == CUDA_SUCCESS);
        }
        if (fault == Fault::unmaps_early && faulty) {
            Piece::unmap(old.back().address);
            old.pop_back();
        }
        while (!old.empty() && cu().cuEventQuery(*old.front().after) == CUDA_SUCCESS) {
            Piece::unmap(old.front().address);
            old.erase(old.begin());
        }
        address = piece.map();
        user = next;
    }
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    Piece::unmap(address);
    for (const Old &each : old) {
        Piece::unmap(each.address);
    }
    return races() - before;
}

} // namespace

TEST_CASE("memory that moves from address to address races exactly if a rule is broken") {
    REQUIRE(cu().configure("race=count,progress=random") == CUDA_SUCCESS);
    const Device device;
    for (unsigned seed = 1; seed <= 5; ++seed) {
        CHECK(races_of(Fault::none, seed) == 0);
        CHECK(races_of(Fault::no_event, seed) > 0);
        CHECK(races_of(Fault::unmaps_early, seed) > 0);
        CHECK(races_of(Fault::programmatic, seed) > 0);
    }
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
