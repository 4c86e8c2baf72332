// A pool that is paused and resumed, through the plugin's table.
#include "simulation.h"

#include <algorithm>
#include <thread>

using namespace pool_test;

namespace {

template <class Function> Function *driver_call(const char *name) {
    return reinterpret_cast<Function *>(host().driver(name, 12000));
}

size_t pause(Simulation &sim, uint32_t flags = EMM_PAUSE_KEEP, emm_status expected = EMM_OK) {
    size_t released = 1;
    const emm_status status = pool().pause(sim.manager, flags, &released);
    INFO(last_failure().text);
    REQUIRE(status == expected);
    return released;
}

emm_status try_pause(Simulation &sim, uint32_t flags = EMM_PAUSE_KEEP) {
    size_t released = 1;
    const emm_status status = pool().pause(sim.manager, flags, &released);
    CHECK(released == 1);
    return status;
}

void resume(Simulation &sim, uint32_t flags = 0, emm_status expected = EMM_OK) {
    const emm_status status = pool().resume(sim.manager, flags);
    INFO(last_failure().text);
    REQUIRE(status == expected);
}

// Each MiB gets a number of its own, and tells whether it still has it.
void write(Simulation &sim, CUdeviceptr ptr, size_t size, unsigned char first) {
    cuda().cuCtxPushCurrent(sim.context);
    for (size_t at = 0; at < size; at += MiB) {
        const size_t bytes = std::min(MiB, size - at);
        REQUIRE(cuda().cuMemsetD8Async(ptr + at, (unsigned char)(first + at / MiB), bytes,
                                       legacy) == CUDA_SUCCESS);
    }
    REQUIRE(cuda().cuCtxSynchronize() == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

bool is_as_written(Simulation &sim, CUdeviceptr ptr, size_t size, unsigned char first) {
    std::vector<unsigned char> bytes(size);
    cuda().cuCtxPushCurrent(sim.context);
    const CUresult result =
        driver_call<decltype(::cuMemcpyDtoH)>("cuMemcpyDtoH")(bytes.data(), ptr, size);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    size_t at = 0;
    while (at < size && bytes[at] == (unsigned char)(first + at / MiB)) {
        at++;
    }
    return result == CUDA_SUCCESS && at == size;
}

} // namespace

TEST_CASE("pause: memory goes back, and comes back with its content at the same addresses") {
    Simulation sim("growth=vmm");
    const CUstream stream = sim.stream();
    const CUdeviceptr large = sim.alloc(37 * MiB, stream), small = sim.alloc(3000, stream),
                      freed = sim.alloc(20 * MiB, stream), last = sim.alloc(5 * MiB, stream);
    sim.free(freed, stream);
    write(sim, large, 37 * MiB, 1);
    write(sim, small, 3000, 77);
    write(sim, last, 5 * MiB, 99);
    const uint64_t reserved = sim.stats().reserved_bytes;
    CHECK(pause(sim) == reserved);
    CHECK(sim.held() == 0);
    CHECK(sim.stats().reserved_bytes == 0);
    CHECK(sim.stats().paused_bytes > 0);
    CHECK(sim.stats().live_bytes == 42 * MiB + 3000);
    CHECK(pause(sim, EMM_PAUSE_KEEP, EMM_S_IGNORED) == 0);
    resume(sim);
    CHECK(sim.stats().paused_bytes == 0);
    CHECK(sim.held() == sim.stats().reserved_bytes);
    CHECK(sim.held() < reserved);
    CHECK(is_as_written(sim, large, 37 * MiB, 1));
    CHECK(is_as_written(sim, small, 3000, 77));
    CHECK(is_as_written(sim, last, 5 * MiB, 99));
    resume(sim, 0, EMM_S_IGNORED);
    CHECK(sim.free(sim.alloc(MiB, stream), stream) == EMM_OK);
}

TEST_CASE("pause: a peer has its access again, also one that was let in meanwhile") {
    for (const bool meanwhile : {false, true}) {
        Simulation sim("growth=vmm");
        const CUdeviceptr ptr = sim.alloc(20 * MiB, legacy);
        const auto let_in = [&] {
            REQUIRE(pool().set_access(sim.manager, 1, EMM_ACCESS_READ_WRITE) == EMM_OK);
        };
        meanwhile ? void() : let_in();
        pause(sim);
        meanwhile ? let_in() : void();
        resume(sim);
        CUmemLocation location = {};
        location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        location.id = 1;
        unsigned long long flags = 0;
        REQUIRE(driver_call<decltype(::cuMemGetAccess)>("cuMemGetAccess")(&flags, &location, ptr) ==
                CUDA_SUCCESS);
        CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
}

TEST_CASE("pause: what is discarded is copied neither way, and nothing is pinned for it") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(20 * MiB, legacy);
    sim.touch(ptr, 20 * MiB, legacy);
    const uint64_t copies = cuda().call_count("cuMemcpyDtoHAsync");
    CHECK(pause(sim, EMM_PAUSE_DISCARD) >= 20 * MiB);
    CHECK(sim.stats().host_reserved_bytes == 0);
    resume(sim);
    CHECK(cuda().call_count("cuMemcpyDtoHAsync") == copies);
    sim.touch(ptr, 20 * MiB, legacy);
}

TEST_CASE("pause: the copy's host memory goes with the resume, or stays for the next pause") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(20 * MiB, legacy);
    write(sim, ptr, 20 * MiB, 5);
    const uint64_t pinned = cuda().call_count("cuMemHostAlloc");
    pause(sim);
    CHECK(sim.stats().host_reserved_bytes >= 20 * MiB);
    resume(sim, EMM_RESUME_KEEP_COPY);
    CHECK(sim.stats().host_reserved_bytes >= 20 * MiB);
    const uint64_t after_one = cuda().call_count("cuMemHostAlloc");
    CHECK(after_one > pinned);
    pause(sim);
    CHECK(cuda().call_count("cuMemHostAlloc") == after_one);
    resume(sim);
    CHECK(sim.stats().host_reserved_bytes == 0);
    CHECK(is_as_written(sim, ptr, 20 * MiB, 5));
    pause(sim);
    resume(sim, EMM_RESUME_KEEP_COPY);
    resume(sim, 0, EMM_S_IGNORED); // not paused: drops what was kept
    CHECK(sim.stats().host_reserved_bytes == 0);
}

TEST_CASE("pause: beyond host_max the copy lies in ordinary memory") {
    Simulation sim("growth=vmm,host_max=4MiB");
    const CUdeviceptr ptr = sim.alloc(20 * MiB, legacy);
    write(sim, ptr, 20 * MiB, 5);
    pause(sim);
    CHECK(sim.stats().host_reserved_bytes <= 4 * MiB);
    resume(sim);
    CHECK(is_as_written(sim, ptr, 20 * MiB, 5));
}

TEST_CASE("pause: frees are taken meanwhile, and what was freed needs no memory") {
    Simulation sim("growth=vmm,slack=0");
    const CUstream stream = sim.stream();
    const CUdeviceptr kept = sim.alloc(20 * MiB, stream), freed = sim.alloc(20 * MiB, stream),
                      slot = sim.alloc(512, stream), other = sim.alloc(512, stream);
    write(sim, kept, 20 * MiB, 9);
    pause(sim);
    CHECK(sim.free(freed, stream, 20 * MiB) == EMM_OK);
    CHECK(sim.free(freed, stream, 20 * MiB) == EMM_E_NOT_OWNED);
    CHECK(sim.free(slot, unordered, 512) == EMM_OK);
    CHECK(sim.trim() == 0);
    CHECK(sim.held() == 0);
    synchronize(sim);
    resume(sim);
    CHECK(sim.held() < 30 * MiB);
    CHECK(is_as_written(sim, kept, 20 * MiB, 9));
    sim.touch(other, 512, stream);
    sim.touch(sim.alloc(20 * MiB, stream), 20 * MiB, stream);
}

TEST_CASE("pause: an allocation fails meanwhile, or waits where when_paused=wait") {
    Simulation sim("growth=vmm");
    sim.free(sim.alloc(600, legacy), legacy);
    pause(sim);
    CUdeviceptr none = 0;
    CHECK(sim.try_alloc(600, legacy, none) == EMM_E_PAUSED);
    CHECK(sim.try_alloc(6 * MiB, unordered, none) == EMM_E_PAUSED);
    CHECK(last_failure().text.find("paused") != std::string::npos);
    emm_ipc_handle handle = {};
    CHECK(pool().get_ipc_handle(sim.manager, 4096, 1, &handle) == EMM_E_PAUSED);
    resume(sim);
    CHECK(sim.try_alloc(600, legacy, none) == EMM_OK);

    Simulation waiting("growth=vmm,when_paused=wait");
    pause(waiting);
    std::atomic<bool> done{false};
    std::thread thread([&] {
        CUdeviceptr ptr = 0;
        CHECK(pool().memalloc(waiting.manager, 600, legacy, &ptr) == EMM_OK);
        CHECK(pool().memfree(waiting.manager, ptr, 600, legacy) == EMM_OK);
        done = true;
    });
    CHECK(!done);
    resume(waiting);
    thread.join();
    CHECK(done);
}

TEST_CASE("pause: an allocation that waits for the resume ends with the context or the device") {
    for (const bool lost : {true, false}) {
        CAPTURE(lost);
        Simulation sim("growth=vmm,when_paused=wait");
        sim.alloc(3 * MiB, legacy);
        pause(sim);
        emm_status status = EMM_OK;
        std::string text;
        std::thread thread([&] {
            CUdeviceptr none = 0;
            status = sim.try_alloc(600, legacy, none);
            text = last_failure().text;
        });
        if (lost) {
            cuda().fail("cuMemCreate@1:700");
            CHECK(pool().resume(sim.manager, 0) == EMM_E_DEVICE_LOST);
            cuda().fail("");
        } else {
            sim.end_context();
        }
        thread.join();
        CHECK(status == (lost ? EMM_E_DEVICE_LOST : EMM_E_RETIRED));
        CHECK_THAT(text, ContainsSubstring(lost ? "sticky device error" : "context"));
        emm_ipc_handle handle = {};
        CHECK(pool().get_ipc_handle(sim.manager, 4096, 1, &handle) == status);
    }
}

TEST_CASE("pause: a reset ends it, and so does the end of the pool") {
    Simulation sim("growth=vmm");
    sim.alloc(20 * MiB, legacy);
    pause(sim);
    REQUIRE(pool().reset(sim.manager) == EMM_OK);
    CHECK(sim.held() == 0);
    CHECK(sim.stats().paused_bytes == 0);
    CHECK(sim.stats().host_reserved_bytes == 0);
    sim.touch(sim.alloc(20 * MiB, legacy), 20 * MiB, legacy);
    pause(sim);
    sim.close();
}

TEST_CASE("pause: a resume that finds no memory changes nothing, and is tried again") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(600 * MiB, legacy);
    write(sim, ptr, 600 * MiB, 3);
    const size_t released = pause(sim);
    cuda().cuCtxPushCurrent(sim.context);
    CUdeviceptr taken = 0;
    REQUIRE(cuda().cuMemAlloc(&taken, 7800 * MiB) == CUDA_SUCCESS);
    const uint64_t held = sim.held();
    for (int i = 0; i < 2; i++) {
        CHECK(pool().resume(sim.manager, 0) == EMM_E_OUT_OF_MEMORY);
        CHECK(sim.held() == held);
        CHECK(sim.stats().paused_bytes == released);
        CUdeviceptr none = 0;
        CHECK(sim.try_alloc(600, legacy, none) == EMM_E_PAUSED);
    }
    REQUIRE(cuda().cuMemFree(taken) == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
    resume(sim);
    CHECK(is_as_written(sim, ptr, 600 * MiB, 3));
}

TEST_CASE("pause: each driver call that fails inside it, or inside the resume, loses nothing") {
    const char *const calls[] = {
        "cuCtxRecordEvent",  "cuEventSynchronize",  "cuStreamCreate",
        "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuMemUnmap",
        "cuMemRelease",      "cuMemCreate",         "cuMemMap",
        "cuMemSetAccess",    "cuMemcpyHtoDAsync",   "cuStreamDestroy",
        "cuMemHostAlloc",    "cuMemFreeHost",       "cuThreadExchangeStreamCaptureMode"};
    for (const char *const call : calls) {
        for (const bool in_resume : {false, true}) {
            CAPTURE(call, in_resume);
            Simulation sim("growth=vmm");
            const CUdeviceptr first = sim.alloc(37 * MiB, legacy);
            const CUdeviceptr gap = sim.alloc(9 * MiB, legacy), second = sim.alloc(3 * MiB, legacy);
            sim.free(gap, legacy);
            write(sim, first, 37 * MiB, 1);
            write(sim, second, 3 * MiB, 200);
            if (in_resume) {
                pause(sim);
            }
            cuda().fail((std::string(call) + "@1").c_str());
            if (in_resume) {
                const emm_status status = pool().resume(sim.manager, 0);
                cuda().fail("");
                if (status != EMM_OK) {
                    CHECK(sim.stats().paused_bytes > 0);
                    resume(sim);
                }
            } else {
                size_t released = 0;
                const emm_status status = pool().pause(sim.manager, EMM_PAUSE_KEEP, &released);
                cuda().fail("");
                if (status != EMM_OK) {
                    CHECK(sim.stats().paused_bytes == 0);
                    CHECK(is_as_written(sim, first, 37 * MiB, 1));
                    CHECK(sim.free(sim.alloc(MiB, legacy), legacy) == EMM_OK);
                    pause(sim);
                }
                resume(sim);
            }
            CHECK(is_as_written(sim, first, 37 * MiB, 1));
            CHECK(is_as_written(sim, second, 3 * MiB, 200));
            CHECK(sim.free(sim.alloc(12 * MiB, legacy), legacy) == EMM_OK);
        }
    }
}

TEST_CASE("pause: pieces in several places come back to the one that owns them") {
    Simulation sim("growth=vmm,slack=0,max=64MiB");
    const CUstream stream = sim.stream();
    const CUdeviceptr kept = sim.alloc(20 * MiB, stream);
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 20; i++) {
        blocks.push_back(sim.alloc(2 * MiB, stream));
        sim.touch(blocks.back(), 2 * MiB, stream);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
        sim.free(blocks[i], stream);
    }
    const CUdeviceptr large = sim.alloc(20 * MiB, stream);
    write(sim, kept, 20 * MiB, 4);
    write(sim, large, 20 * MiB, 40);
    pause(sim);
    CHECK(sim.held() == 0);
    resume(sim);
    CHECK(is_as_written(sim, kept, 20 * MiB, 4));
    CHECK(is_as_written(sim, large, 20 * MiB, 40));
    sim.touch(sim.alloc(4 * MiB, stream), 4 * MiB, stream);
}

TEST_CASE("pause: a thousand cycles leave nothing behind") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(5 * MiB, legacy);
    write(sim, ptr, 5 * MiB, 4);
    pause(sim);
    resume(sim);
    const uint64_t held = sim.held(), objects = Simulation::objects();
    for (int i = 0; i < 1000; i++) {
        sim.free(sim.alloc(3 * MiB, legacy), legacy);
        pause(sim, i % 5 == 0 ? EMM_PAUSE_DISCARD : EMM_PAUSE_KEEP);
        resume(sim, i % 3 == 0 ? EMM_RESUME_KEEP_COPY : 0);
        if (i % 5 == 0) {
            write(sim, ptr, 5 * MiB, 4);
        }
    }
    CHECK(is_as_written(sim, ptr, 5 * MiB, 4));
    CHECK(sim.held() == held);
    CHECK(Simulation::objects() <= objects);
}

TEST_CASE("pause: none while a capture is announced, in a deferred section, or with segments") {
    Simulation sim("growth=vmm");
    const CUstream stream = sim.stream();
    sim.alloc(MiB, stream);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    CHECK(try_pause(sim) == EMM_E_CAPTURING);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    CHECK(try_pause(sim) == EMM_E_BUSY);
    REQUIRE(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.free(sim.alloc(MiB, stream), stream) == EMM_OK);
    pause(sim);
    resume(sim);
    Simulation segments("growth=segment");
    CHECK(try_pause(segments) == EMM_E_NOT_SUPPORTED);
    CHECK(last_failure().text.find("growth=vmm") != std::string::npos);
    CHECK(pool().resume(segments.manager, 0) == EMM_S_IGNORED);
}

TEST_CASE("pause: none where a deferred section begins while it waits for the device or copies") {
    static Simulation *pausing = nullptr;
    for (auto *const hook : {&before_waiting, &before_giving_back}) {
        Simulation sim("growth=vmm");
        const CUdeviceptr ptr = sim.alloc(6 * MiB, legacy), idle = sim.alloc(40 * MiB, legacy);
        write(sim, ptr, 6 * MiB, 5);
        sim.free(idle, legacy);
        pausing = &sim;
        *hook = [] {
            before_waiting = before_giving_back = nullptr;
            REQUIRE(pool().defer_cleanup(pausing->manager, 1) == EMM_OK);
        };
        CHECK(try_pause(sim) == EMM_E_BUSY);
        CHECK_THAT(last_failure().text, ContainsSubstring("inside a deferred section"));
        CHECK(sim.stats().paused_bytes == 0);
        CHECK(sim.stats().host_reserved_bytes == 0);
        CHECK(is_as_written(sim, ptr, 6 * MiB, 5));
        REQUIRE(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
        pause(sim);
        resume(sim);
        CHECK(is_as_written(sim, ptr, 6 * MiB, 5));
    }
}

TEST_CASE("pause: what it may pin is what host_max leaves when it copies") {
    static Simulation *pausing = nullptr;
    Simulation sim("growth=vmm,host_max=8MiB");
    write(sim, sim.alloc(6 * MiB, legacy), 6 * MiB, 5);
    pausing = &sim;
    before_waiting = [] {
        before_waiting = nullptr;
        void *memory = nullptr;
        emm_deviceptr device = 0;
        REQUIRE(pool().memhostalloc(pausing->manager, 4 * MiB, 0, &memory, &device) == EMM_OK);
    };
    pause(sim);
    CHECK(sim.stats().host_reserved_bytes <= 8 * MiB);
    resume(sim);
}

// The pause begins while the host makes the export: then a request is refused.
TEST_CASE("pause: an export that was being made when it began stays, or keeps it from pausing") {
    static Simulation *exporting = nullptr;
    static uint32_t flags = 0;
    static emm_status paused = EMM_OK;
    static std::thread pausing;
    emm_host serving = host();
    serving.serve_ipc = [](emm_context *, const emm_ipc_source *, emm_ipc_handle *) -> emm_status {
        pausing = std::thread([] {
            size_t released = 0;
            paused = pool().pause(exporting->manager, flags, &released);
        });
        CUdeviceptr ptr = 0;
        while (exporting->try_alloc(MiB, legacy, ptr) == EMM_OK) {
            exporting->free(ptr, legacy);
        }
        return EMM_OK;
    };
    serving.withdraw_ipc = [](emm_context *, const emm_ipc_handle *) -> emm_status {
        return EMM_OK;
    };
    for (const uint32_t unshared : {0u, EMM_PAUSE_UNSHARED}) {
        CAPTURE(unshared);
        Simulation sim("growth=vmm", serving);
        const CUdeviceptr ptr = sim.alloc(6 * MiB, legacy);
        write(sim, ptr, 6 * MiB, 5);
        exporting = &sim;
        flags = EMM_PAUSE_DISCARD | unshared;
        emm_ipc_handle handle = {};
        REQUIRE(pool().get_ipc_handle(sim.manager, ptr, 6 * MiB, &handle) == EMM_OK);
        pausing.join();
        CHECK(paused == (unshared ? EMM_E_BUSY : EMM_OK));
        CHECK(is_as_written(sim, ptr, 6 * MiB, 5));
        REQUIRE(pool().release_ipc_handle(sim.manager, &handle) == EMM_OK);
        resume(sim, 0, unshared ? EMM_S_IGNORED : EMM_OK);
    }
}

TEST_CASE("pause: a captured graph replays over memory that was away") {
    Simulation sim("growth=vmm");
    const CUstream stream = sim.stream();
    const CUdeviceptr ptr = sim.alloc(6 * MiB, stream);
    cuda().cuCtxPushCurrent(sim.context);
    sim.notice(stream, EMM_STREAM_CAPTURE_BEGINS);
    REQUIRE(cuda().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    const CUdeviceptr inside = sim.alloc(3 * MiB, stream);
    REQUIRE(cuda().cuMemsetD8Async(inside, 8, 3 * MiB, stream) == CUDA_SUCCESS);
    REQUIRE(cuda().cuMemsetD8Async(ptr + MiB, 8, MiB, stream) == CUDA_SUCCESS);
    sim.free(inside, stream);
    CUgraph graph = nullptr;
    REQUIRE(cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    sim.notice(stream, EMM_STREAM_CAPTURE_ENDS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuda().cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
    write(sim, ptr, 6 * MiB, 7);
    pause(sim);
    resume(sim);
    CHECK(is_as_written(sim, ptr, 6 * MiB, 7));
    REQUIRE(cuda().cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
    REQUIRE(cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(is_as_written(sim, ptr, 6 * MiB, 7));
    REQUIRE(cuda().cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    REQUIRE(cuda().cuGraphDestroy(graph) == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    cuda().cuCtxPopCurrent(&popped);
}

TEST_CASE("pause: idle memory goes back without a copy, as it does in a trim") {
    Simulation sim("growth=vmm");
    for (const CUstream stream : {legacy, sim.stream(), sim.stream(false), unordered}) {
        sim.free(sim.alloc(16 * MiB, stream), stream);
        sim.free(sim.alloc(700, stream), stream);
    }
    const uint64_t copies = cuda().call_count("cuMemcpyDtoHAsync");
    const uint64_t reserved = sim.stats().reserved_bytes;
    CHECK(pause(sim) == reserved);
    CHECK(cuda().call_count("cuMemcpyDtoHAsync") == copies);
    resume(sim);
    CHECK(sim.held() == 0);
}

TEST_CASE("pause: get_memory_info does not tell of what a resume takes as free") {
    for (const char *const max : {"", ",max=64MiB"}) {
        CAPTURE(max);
        Simulation sim(std::string("growth=vmm,slack=0") + max);
        const auto free_bytes = [&] {
            size_t free = 0, total = 0;
            REQUIRE(pool().get_memory_info(sim.manager, &free, &total) == EMM_OK);
            return free;
        };
        sim.alloc(32 * MiB, legacy);
        const size_t before = free_bytes();
        pause(sim);
        CHECK(free_bytes() == before);
        resume(sim);
        CHECK(free_bytes() == before);
    }
}

TEST_CASE("pause: host_max holds for the copy and for pinned memory of the program together") {
    Simulation sim("growth=vmm,host_max=8MiB");
    const CUdeviceptr ptr = sim.alloc(6 * MiB, legacy);
    write(sim, ptr, 6 * MiB, 5);
    pause(sim);
    REQUIRE(sim.stats().host_reserved_bytes == 6 * MiB);
    const auto take = [&] {
        void *memory = nullptr;
        emm_deviceptr device = 0;
        return pool().memhostalloc(sim.manager, 4 * MiB, 0, &memory, &device);
    };
    CHECK(take() == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK_THAT(last_failure().text, ContainsSubstring("6291456 for the copy of a pause"));
    CHECK(sim.stats().host_reserved_bytes == 6 * MiB);
    resume(sim);
    CHECK(take() == EMM_OK);
    pause(sim);
    CHECK(sim.stats().host_reserved_bytes <= 8 * MiB);
    resume(sim);
    CHECK(is_as_written(sim, ptr, 6 * MiB, 5));
}

TEST_CASE("pause: what a failed resume leaves mapped is unmapped, and its addresses go back") {
    for (const bool again : {true, false}) {
        CAPTURE(again);
        Simulation sim("growth=vmm");
        const CUstream stream = sim.stream();
        const CUdeviceptr first = sim.alloc(37 * MiB, stream), second = sim.alloc(MiB, stream);
        write(sim, first, 37 * MiB, 5);
        pause(sim);
        const uint64_t objects = Simulation::objects();
        cuda().fail("cuMemSetAccess@1");
        cuda().fail("cuMemUnmap@1+");
        CHECK(pool().resume(sim.manager, 0) != EMM_OK);
        cuda().fail("");
        if (again) {
            resume(sim);
            CHECK(is_as_written(sim, first, 37 * MiB, 5));
            sim.free(first, stream);
            sim.free(second, stream);
        }
        REQUIRE(pool().reset(sim.manager) == EMM_OK);
        CHECK(sim.held() == 0);
        CHECK(Simulation::objects() < objects);
        sim.close();
    }
}
