// Behaviour: a pause beside other calls, limits and failures.
#include "pausing.h"

#include <thread>

using namespace pool_test;

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
        CHECK_THAT(text, ContainsSubstring(lost ? "the device is lost"
                                                : "the context or the driver has ended"));
        emm_ipc_handle handle = {};
        CHECK(pool().get_ipc_handle(sim.manager, 4096, 1, &handle) == status);
    }
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

TEST_CASE("pause: what is copied leaves and returns while the rest is copied") {
    static uint64_t first_unmap_waits = 0, last_create_copies = 0;
    Simulation sim("growth=vmm,max=512MiB");
    const CUdeviceptr ptr = sim.alloc(100 * MiB, legacy);
    write(sim, ptr, 100 * MiB, 5);
    const uint64_t waits = cuda().call_count("cuStreamSynchronize");
    before_giving_back = [] {
        before_giving_back = nullptr;
        first_unmap_waits = cuda().call_count("cuStreamSynchronize");
    };
    pause(sim);
    CHECK(first_unmap_waits == waits);
    CHECK(sim.held() == 0);
    const uint64_t copies = cuda().call_count("cuMemcpyHtoDAsync");
    before_mem_create = [] { last_create_copies = cuda().call_count("cuMemcpyHtoDAsync"); };
    resume(sim);
    before_mem_create = nullptr;
    CHECK(last_create_copies > copies);
    CHECK(is_as_written(sim, ptr, 100 * MiB, 5));
}

TEST_CASE("pause: a call that fails between two parts of a pause or a resume loses nothing") {
    const char *const calls[] = {"cuEventCreate",     "cuEventRecord",       "cuEventSynchronize",
                                 "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuMemUnmap",
                                 "cuMemRelease",      "cuMemCreate",         "cuMemMap",
                                 "cuMemSetAccess",    "cuMemcpyHtoDAsync"};
    for (const char *const call : calls) {
        for (const char *const when : {"@2", "@2+"}) {
            CAPTURE(call, when);
            Simulation sim("growth=vmm,max=512MiB");
            const CUdeviceptr ptr = sim.alloc(40 * MiB, legacy);
            write(sim, ptr, 40 * MiB, 1);
            const uint64_t held = sim.held();
            size_t released = 0;
            cuda().fail((std::string(call) + when).c_str());
            const emm_status paused = pool().pause(sim.manager, EMM_PAUSE_KEEP, &released);
            cuda().fail("");
            CHECK(sim.stats().paused_bytes <= held);
            CHECK((paused == EMM_OK || sim.stats().paused_bytes == 0));
            CHECK((paused == EMM_OK || is_as_written(sim, ptr, 40 * MiB, 1)));
            paused == EMM_OK ? void() : void(pause(sim));
            cuda().fail((std::string(call) + when).c_str());
            const emm_status resumed = pool().resume(sim.manager, EMM_RESUME_KEEP_COPY);
            cuda().fail("");
            CHECK((resumed == EMM_OK || sim.stats().paused_bytes > 0));
            resumed == EMM_OK ? void() : resume(sim);
            CHECK(is_as_written(sim, ptr, 40 * MiB, 1));
            CHECK(sim.free(sim.alloc(12 * MiB, legacy), legacy) == EMM_OK);
        }
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
