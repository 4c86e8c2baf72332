// Behaviour: CUDA's promises about streams and events: the same on real hardware and simulated.
#include "pending_work.h"

#include <vector>

namespace {

uint64_t stream_id(CUstream stream) {
    unsigned long long id = 0;
    REQUIRE(cu().cuStreamGetId(stream, &id) == CUDA_SUCCESS);
    return id;
}

void push(void *list) {
    auto &numbers = *static_cast<std::vector<int> *>(list);
    numbers.push_back(static_cast<int>(numbers.size()));
}

} // namespace

TEST_CASE("a stream's handle comes back for a new one, its id does not") {
    const Device device;
    CUstream first = nullptr, second = nullptr;
    REQUIRE(cu().cuStreamCreate(&first, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const uint64_t id = stream_id(first);
    REQUIRE(cu().cuStreamDestroy(first) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamCreate(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHECK(second == first);
    CHECK(stream_id(second) != id);
    REQUIRE(cu().cuStreamDestroy(second) == CUDA_SUCCESS);
}

TEST_CASE("work on a stream runs in order") {
    const Device device;
    const Stream stream;
    std::vector<int> numbers;
    for (int i = 0; i < 100; ++i) {
        REQUIRE(cu().cuLaunchHostFunc(stream, push, &numbers) == CUDA_SUCCESS);
    }
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(numbers.size() == 100);
    CHECK(numbers[99] == 99);
}

TEST_CASE("an event that was never recorded is complete") {
    const Device device;
    const Event event;
    CHECK(cu().cuEventQuery(event) == CUDA_SUCCESS);
    CHECK(cu().cuEventSynchronize(event) == CUDA_SUCCESS);
}

TEST_CASE("an event is pending until the work before it is done") {
    PendingWork work;
    const Device device;
    const Stream stream;
    const Event event;
    work.begin(stream);
    REQUIRE(cu().cuEventRecord(event, stream) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuEventSynchronize(event) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_SUCCESS);
}

TEST_CASE("a stream is pending until its work is done") {
    PendingWork work;
    const Device device;
    const Stream stream;
    work.begin(stream);
    CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(stream) == CUDA_SUCCESS);
}

TEST_CASE("a stream waits for an event of another") {
    PendingWork work;
    const Device device;
    const Stream first, second;
    const Event event;
    work.begin(first);
    REQUIRE(cu().cuEventRecord(event, first) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamWaitEvent(second, event, 0) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(second) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuStreamSynchronize(second) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_SUCCESS);
}

TEST_CASE("the legacy stream waits for blocking streams, and not for others") {
    PendingWork work;
    const Device device;
    const Stream blocking(CU_STREAM_DEFAULT), other(CU_STREAM_NON_BLOCKING);
    const Event legacy, alone;
    work.begin(blocking);
    REQUIRE(cu().cuEventRecord(legacy, nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventRecord(alone, other) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(legacy) == CUDA_ERROR_NOT_READY);
    CHECK(cu().cuEventSynchronize(alone) == CUDA_SUCCESS);
    work.end();
    CHECK(cu().cuEventSynchronize(legacy) == CUDA_SUCCESS);
}

TEST_CASE("a context's event covers all of its streams, and needs no current context") {
    if (!cu().record_context) {
        WARN("skipped: this driver has no cuCtxRecordEvent");
        return;
    }
    PendingWork work;
    const Device device;
    const Stream stream(CU_STREAM_NON_BLOCKING);
    const Event event;
    CUcontext popped = nullptr;
    work.begin(stream);
    REQUIRE(cu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(cu().record_context(device.context, event) == CUDA_SUCCESS);
    CHECK(cu().cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    work.end();
    CHECK(cu().cuEventSynchronize(event) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxPushCurrent(device.context) == CUDA_SUCCESS);
}

TEST_CASE("destroying a stream lets its work end") {
    const Device device;
    std::vector<int> numbers;
    {
        const Stream stream;
        REQUIRE(cu().cuLaunchHostFunc(stream, push, &numbers) == CUDA_SUCCESS);
    }
    REQUIRE(cu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(numbers.size() == 1);
}

TEST_CASE("freeing memory waits for work, unmapping does not") {
    PendingWork work;
    const Device device;
    const Stream stream;
    std::vector<int> numbers;
    CUdeviceptr address = 0;
    REQUIRE(cu().cuMemAlloc(&address, 1 << 20) == CUDA_SUCCESS);
    REQUIRE(cu().cuLaunchHostFunc(stream, push, &numbers) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemFree(address) == CUDA_SUCCESS);
    CHECK(numbers.size() == 1);
}

TEST_CASE("a host function may not call CUDA, and the call says so or works") {
    const Device device;
    const Stream stream;
    struct Seen {
        CUresult result = CUDA_ERROR_UNKNOWN;
    } seen;
    const auto call = [](void *argument) {
        CUdeviceptr address = 0;
        static_cast<Seen *>(argument)->result = cu().cuMemAlloc(&address, 64);
    };
    REQUIRE(cu().cuLaunchHostFunc(stream, call, &seen) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(seen.result == CUDA_ERROR_NOT_PERMITTED);
}
