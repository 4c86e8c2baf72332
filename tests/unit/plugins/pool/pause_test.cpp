// A pool that is paused and resumed, through the plugin's table.
#include "pausing.h"

#include <thread>

using namespace pool_test;

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

TEST_CASE("pause: what was kept can be read meanwhile, and nothing else") {
    Simulation sim("growth=vmm");
    const CUdeviceptr first = sim.alloc(300 * MiB, legacy), second = sim.alloc(4 * MiB, legacy);
    write(sim, first, 300 * MiB, 1); // in two chunks of the copy
    write(sim, second, 4 * MiB, 77);
    std::vector<unsigned char> host(300 * MiB, 0xee);
    const auto read = [&](CUdeviceptr ptr, size_t size) {
        return pool().read_paused(sim.manager, ptr, size, host.data());
    };
    CHECK(read(first, 8) == EMM_S_IGNORED);
    CHECK(host[0] == 0xee);
    pause(sim);
    REQUIRE(read(first, 300 * MiB) == EMM_OK);
    for (size_t mib = 0; mib < 300; mib++) {
        REQUIRE(host[mib * MiB] == (unsigned char)(1 + mib));
        REQUIRE(host[mib * MiB + MiB - 1] == (unsigned char)(1 + mib));
    }
    REQUIRE(read(second + MiB - 1, 2) == EMM_OK);
    CHECK((host[0] == 77 && host[1] == 78));
    host[0] = 0xee;
    CHECK(read(first - 1, 2) == EMM_E_NOT_OWNED);
    CHECK(read(first, 400 * MiB) == EMM_E_NOT_OWNED);
    CHECK(read(first, SIZE_MAX) == EMM_E_NOT_OWNED);
    CHECK(host[0] == 0xee);
    resume(sim, EMM_RESUME_KEEP_COPY);
    CHECK(read(first, 8) == EMM_S_IGNORED);
    pause(sim, EMM_PAUSE_DISCARD);
    CHECK(read(first, 8) == EMM_E_NOT_OWNED);
    resume(sim);
}

TEST_CASE("pause: where it went through in part, what was not copied cannot be read") {
    Simulation sim("growth=vmm");
    std::vector<CUdeviceptr> blocks; // their copy has three whole parts and a rest
    for (int i = 0; i < 3; i++) {
        blocks.push_back(sim.alloc(20 * MiB, legacy));
        write(sim, blocks.back(), 20 * MiB, (unsigned char)(1 + 20 * i));
    }
    std::sort(blocks.begin(), blocks.end());
    REQUIRE(blocks[2] - blocks[0] == 40 * MiB);
    std::vector<unsigned char> host(60 * MiB);
    cuda().fail("cuStreamSynchronize@1+"); // at the end of all copies
    pause(sim);
    cuda().fail("");
    CHECK(pool().read_paused(sim.manager, blocks[0], 40 * MiB, host.data()) == EMM_OK);
    CHECK(pool().read_paused(sim.manager, blocks[0], 60 * MiB, host.data()) == EMM_E_NOT_OWNED);
    resume(sim);
    for (const CUdeviceptr block : blocks) {
        CHECK(sim.free(block, legacy) == EMM_OK);
    }
}

TEST_CASE("pause: the memory of a large block comes back in few pieces, which go back with it") {
    for (const bool keeps : {true, false}) {
        Simulation sim("growth=vmm");
        const uint64_t start = cuda().call_count("cuMemCreate");
        const CUdeviceptr large = sim.alloc(160 * MiB, legacy), small = sim.alloc(3 * MiB, legacy);
        write(sim, large, 160 * MiB, 1);
        write(sim, small, 3 * MiB, 77);
        const uint64_t before = cuda().call_count("cuMemCreate");
        CHECK(before - start >= 20);
        pause(sim, keeps ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD);
        const uint64_t given_back = cuda().call_count("cuMemRelease");
        resume(sim);
        CHECK(cuda().call_count("cuMemCreate") - before <= 8); // 5 of 32 MiB, and the rest
        pause(sim, EMM_PAUSE_KEEP);
        CHECK(cuda().call_count("cuMemRelease") - given_back <= 8);
        resume(sim);
        CHECK(cuda().call_count("cuMemCreate") - before <= 16);
        CHECK((!keeps || is_as_written(sim, large, 160 * MiB, 1)));
        const uint64_t held = sim.held();
        REQUIRE(sim.free(large, legacy) == EMM_OK);
        synchronize(sim);
        size_t released = 0;
        REQUIRE(pool().trim(sim.manager, 0, &released) == EMM_OK);
        CHECK(held - sim.held() >= 158 * MiB);
        CHECK((!keeps || is_as_written(sim, small, 3 * MiB, 77)));
        REQUIRE(sim.free(small, legacy) == EMM_OK);
    }
}

TEST_CASE("pause: where slack is not wanted, or memory is little, pieces stay pages") {
    for (const char *const options : {"growth=vmm,slack=0", "growth=vmm,max=256MiB"}) {
        Simulation sim(options);
        sim.alloc(20 * MiB, legacy);
        const uint64_t before = cuda().call_count("cuMemCreate");
        pause(sim, EMM_PAUSE_DISCARD);
        resume(sim);
        CHECK(cuda().call_count("cuMemCreate") - before == 10);
    }
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
    resume(sim, 0, EMM_S_IGNORED); // not paused: drops kept content
    CHECK(sim.stats().host_reserved_bytes == 0);
}

TEST_CASE("pause: the copy of a resume in a deferred section goes at the section's end") {
    Simulation sim("growth=vmm");
    const CUdeviceptr ptr = sim.alloc(20 * MiB, legacy);
    write(sim, ptr, 20 * MiB, 5);
    const auto returned = [] { return cuda().call_count("cuMemFreeHost"); };
    const uint64_t before = returned();
    pause(sim);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    resume(sim);
    resume(sim, 0, EMM_S_IGNORED);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(returned() == before);
    CHECK(sim.stats().host_reserved_bytes >= 20 * MiB);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.stats().host_reserved_bytes == 0);
    CHECK(is_as_written(sim, ptr, 20 * MiB, 5));
    // Kept for the next pause, it stays.
    pause(sim);
    REQUIRE(pool().defer_cleanup(sim.manager, 1) == EMM_OK);
    resume(sim, EMM_RESUME_KEEP_COPY);
    CHECK(pool().defer_cleanup(sim.manager, 0) == EMM_OK);
    CHECK(sim.stats().host_reserved_bytes >= 20 * MiB);
    resume(sim, 0, EMM_S_IGNORED);
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
        const uint64_t copies = cuda().call_count("cuMemcpyHtoDAsync"),
                       pieces = cuda().call_count("cuMemCreate");
        CHECK(pool().resume(sim.manager, 0) == EMM_E_OUT_OF_MEMORY);
        CHECK(cuda().call_count("cuMemcpyHtoDAsync") == copies);
        CHECK(cuda().call_count("cuMemCreate") == pieces + 1); // the trial
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

// The pause begins while the host makes the export: then a request is refused.
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
