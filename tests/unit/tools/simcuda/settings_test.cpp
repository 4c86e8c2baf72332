// Behaviour: progress, faults, limits, poses, early entries and counters of the simulated driver.
#include "cuda_driver.h"
#include "in_child.h"

#include <atomic>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

void count(void *number) {
    ++*static_cast<int *>(number);
}

void configure(const char *options) {
    REQUIRE(cu().configure(options) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("eager work runs at once") {
    const Device device;
    const Stream stream;
    int runs = 0;
    REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    CHECK(runs == 1);
}

TEST_CASE("lazy work runs when the program asks for the second time, or waits") {
    configure("progress=lazy");
    const Device device;
    const Stream stream;
    int runs = 0;
    REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    CHECK(runs == 0);
    CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    CHECK(runs == 0);
    CHECK(cu().cuStreamQuery(stream) == CUDA_SUCCESS);
    CHECK(runs == 1);
}

TEST_CASE("a pool finds out that another stream's work is over before it grows") {
    configure("progress=timed,duration=0");
    const Device device;
    const Stream first, second;
    CUmemoryPool pool = nullptr;
    REQUIRE(cu().cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    const auto reserved = [&] {
        cuuint64_t bytes = 0;
        cu().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
        return bytes;
    };
    CUdeviceptr ptr = 0;
    REQUIRE(cu().cuMemAllocAsync(&ptr, 32 << 20, first) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemsetD8Async(ptr, 1, 32 << 20, first) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemFreeAsync(ptr, first) == CUDA_SUCCESS);
    const cuuint64_t before = reserved();
    REQUIRE(cu().cuMemAllocAsync(&ptr, 32 << 20, second) == CUDA_SUCCESS);
    CHECK(reserved() == before);
    CHECK(cu().cuMemFreeAsync(ptr, second) == CUDA_SUCCESS);
}

TEST_CASE("random work gets done, however the coin falls") {
    configure("progress=random,seed=7");
    const Device device;
    const Stream stream;
    int runs = 0;
    for (int i = 0; i < 100; ++i) {
        REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    }
    CHECK(runs < 100);
    while (cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
    }
    CHECK(runs == 100);
}

TEST_CASE("timed work is done when its time is over and the program asks") {
    configure("progress=timed,duration=0");
    const Device device;
    const Stream stream;
    int runs = 0;
    REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    CHECK(runs == 0);
    CHECK(cu().cuStreamQuery(stream) == CUDA_SUCCESS);
    CHECK(runs == 1);
}

// A sanitizer needs more addresses than the limit leaves.
#if !defined(SANITIZED)
TEST_CASE("a device that finds no room says so, and what to set") {
    const auto start = [](int resource, rlim_t bytes, bool less) {
        return in_child([=] {
            const rlimit limit = {bytes, bytes};
            setrlimit(static_cast<__rlimit_resource>(resource), &limit);
            if (less) {
                cu().configure("memory=1GiB");
            }
            _exit(cu().cuInit(0) == CUDA_ERROR_OUT_OF_MEMORY ? 2 : 0);
        });
    };
    const Ending addresses = start(RLIMIT_AS, rlim_t(64) << 30, false);
    CHECK(addresses.status == 2);
    CHECK_THAT(addresses.text, ContainsSubstring("Cannot allocate memory") &&
                                   ContainsSubstring("EMM_SIM=memory=16GiB asks for less"));
    CHECK(start(RLIMIT_AS, rlim_t(64) << 30, true).status == 0);
    const Ending handles = start(RLIMIT_AS, rlim_t(500) << 20, true);
    CHECK(handles.status == 2);
    CHECK_THAT(handles.text, ContainsSubstring("no room for handles, Cannot allocate memory"));
    const Ending file = start(RLIMIT_FSIZE, 4096, true);
    CHECK(file.status == 2);
    CHECK_THAT(file.text, ContainsSubstring("File too large"));
}
#endif

TEST_CASE("half a TiB in pages of 2 MiB can be made and released") {
    constexpr size_t size = 2 << 20, pages = 1 << 18;
    configure("memory=512GiB,access=0");
    const Device device;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::vector<CUmemGenericAllocationHandle> handles(pages);
    size_t made = 0, released = 0;
    for (CUmemGenericAllocationHandle &handle : handles) {
        made += cu().cuMemCreate(&handle, size, &wanted, 0) == CUDA_SUCCESS;
    }
    CHECK(made == pages);
    CHECK(counters().device_bytes == pages * size);
    for (const CUmemGenericAllocationHandle handle : handles) {
        released += cu().cuMemRelease(handle) == CUDA_SUCCESS;
    }
    CHECK(released == pages);
    CHECK(counters().device_bytes == 0);
}

TEST_CASE("timed work is done before its time if the program waits") {
    configure("progress=timed,duration=1000000000");
    const Device device;
    const Stream stream;
    int runs = 0;
    REQUIRE(cu().cuLaunchHostFunc(stream, count, &runs) == CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) {
        CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    }
    CHECK(runs == 0);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(runs == 1);
}

TEST_CASE("timed work takes the time that it is given in place of the setting's") {
    configure("progress=timed,duration=1000000000");
    const Device device;
    const Stream stream;
    REQUIRE(cu().work(stream, 0) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(stream) == CUDA_SUCCESS);
    REQUIRE(cu().work(stream, 1000000000) == CUDA_SUCCESS);
    REQUIRE(cu().work(stream, 0) == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    CHECK(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

TEST_CASE("a long chain of lazy work runs without deep recursion") {
    configure("progress=lazy");
    const Device device;
    const Stream stream;
    int runs = 0;
    for (int i = 0; i < 200000; ++i) {
        cu().cuLaunchHostFunc(stream, count, &runs);
    }
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(runs == 200000);
}

TEST_CASE("kernels load and do nothing with kernels=none alone, and standard error has it once") {
    for (const bool has_kernels : {false, true}) {
        const Ending ending = in_child([has_kernels] {
            configure(has_kernels ? "progress=lazy,kernels=none" : "progress=lazy");
            const Device device;
            const Stream stream;
            const auto load =
                cu().optional<decltype(&::cuModuleLoadData)>("cuModuleLoadData", 2000);
            const auto find =
                cu().optional<decltype(&::cuModuleGetFunction)>("cuModuleGetFunction", 2000);
            const auto launch = cu().optional<decltype(&::cuLaunchKernel)>("cuLaunchKernel", 4000);
            if (!load || !find || !launch) {
                _exit(!load && !find && !launch ? 7 : 1);
            }
            CUmodule module = nullptr;
            CUfunction function = nullptr;
            bool done = true;
            for (int i = 0; i < 2; ++i) {
                done = done && load(&module, ".version 7.0") == CUDA_SUCCESS &&
                       find(&function, module, "any") == CUDA_SUCCESS &&
                       launch(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) ==
                           CUDA_SUCCESS &&
                       cu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY &&
                       cu().cuStreamSynchronize(stream) == CUDA_SUCCESS;
            }
            _exit(done ? 8 : 1);
        });
        CHECK(ending.status == (has_kernels ? 8 : 7));
        const std::string told = "kernels=none: kernels are loaded and launched, and do nothing\n";
        CHECK(ending.text == (has_kernels ? "simcuda: " + told : ""));
    }
}

TEST_CASE("an unknown option is named with those that are known") {
    const Ending ending = in_child([] {
        setenv("EMM_SIM", "devices=2,colour=red", 1);
        _exit(cu().cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 7 : 1);
    });
    CHECK(ending.status == 7);
    CHECK_THAT(ending.text, ContainsSubstring("unknown option 'colour'"));
    CHECK_THAT(ending.text, ContainsSubstring("progress"));
}

TEST_CASE("an option that is nearly one leads to it") {
    for (const auto &[given, meant] : {std::pair{"16GB", "memory=16GiB"},
                                       {"16GiB", "memory=16GiB"},
                                       {"memory=16GB", "memory=16GiB"},
                                       {"memry=16GiB", "memory=16GiB"},
                                       {"progress=Lazy", "progress=lazy"},
                                       {"colour=red", ""},
                                       {"memory=1MiB", ""},
                                       {"duration=1M", ""}}) {
        CAPTURE(given);
        const Ending ending = in_child([text = given] {
            setenv("EMM_SIM", text, 1);
            _exit(cu().cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 7 : 1);
        });
        CHECK(ending.status == 7);
        const std::string hint = "; did you mean '" + std::string(meant) + "'?";
        CHECK(ending.text.find("did you mean") ==
              (*meant ? ending.text.find(hint) + 2 : std::string::npos));
    }
}

TEST_CASE("an option that is missing between commas is an error") {
    for (const char *const text : {"devices=2,", ",devices=2", "devices=2,,progress=lazy"}) {
        const Ending ending = in_child([text] {
            setenv("EMM_SIM", text, 1);
            _exit(cu().cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 7 : 1);
        });
        CHECK(ending.status == 7);
        CHECK_THAT(ending.text, ContainsSubstring("expected NAME=VALUE between commas"));
    }
}

TEST_CASE("a wrong value is named with what the option takes") {
    const Ending ending = in_child([] {
        setenv("EMM_SIM", "progress=slow", 1);
        _exit(cu().cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 7 : 1);
    });
    CHECK(ending.status == 7);
    CHECK_THAT(ending.text, ContainsSubstring("eager, lazy, random or timed"));
}

TEST_CASE("the third call fails, once") {
    configure("fail=cuMemAlloc@3");
    const Device device;
    CUdeviceptr address = 0;
    for (const CUresult expected :
         {CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS}) {
        CHECK(cu().cuMemAlloc(&address, 4096) == expected);
    }
    CHECK(counters().device_blocks == 3);
    CHECK(counters().faults == 1);
}

TEST_CASE("what a program has made beside memory is counted until it is destroyed") {
    const Device device;
    const uint64_t before = counters().objects;
    {
        const Stream stream;
        CUevent event = nullptr;
        REQUIRE(cu().cuEventCreate(&event, 0) == CUDA_SUCCESS);
        CHECK(counters().objects == before + 2);
        REQUIRE(cu().cuEventDestroy(event) == CUDA_SUCCESS);
        CHECK(counters().objects == before + 1);
    }
    CHECK(counters().objects == before);
}

TEST_CASE("a context's events end with it, and no other event gets their handles") {
    CUcontext context = nullptr;
    CUevent event = nullptr, later = nullptr;
    REQUIRE(cu().cuInit(0) == CUDA_SUCCESS);
    const uint64_t before = counters().objects;
    REQUIRE(cu().create_context(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuEventCreate(&event, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuCtxDestroy(context) == CUDA_SUCCESS);
    CHECK(counters().objects == before);
    const Device device;
    REQUIRE(cu().cuEventCreate(&later, 0) == CUDA_SUCCESS);
    CHECK(later != event);
    CHECK(cu().cuEventDestroy(later) == CUDA_SUCCESS);
}

TEST_CASE("a thread that waits for work which another one runs is counted") {
    const Device device;
    const Stream stream;
    std::atomic<bool> runs{false}, over{false};
    const auto hold = [](void *flags) {
        auto [begun, ended] =
            *static_cast<std::pair<std::atomic<bool> *, std::atomic<bool> *> *>(flags);
        for (*begun = true; !*ended;) {
            std::this_thread::yield();
        }
    };
    std::pair<std::atomic<bool> *, std::atomic<bool> *> flags{&runs, &over};
    CUcontext context = nullptr;
    REQUIRE(cu().cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    std::thread first([&] {
        cu().cuCtxSetCurrent(context);
        cu().cuLaunchHostFunc(stream, hold, &flags);
    });
    while (!runs) {
        std::this_thread::yield();
    }
    CHECK(counters().waiting == 0);
    std::thread second([&] { cu().cuStreamSynchronize(stream); });
    while (counters().waiting == 0) {
        std::this_thread::yield();
    }
    over = true;
    second.join();
    first.join();
    CHECK(counters().waiting == 0);
}

TEST_CASE("all calls from the second on fail, with the error asked for") {
    const Device device;
    CUdeviceptr address = 0;
    REQUIRE(cu().fail("cuMemAlloc@two") == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().fail("cuNoSuchCall@2") == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cu().fail("cuMemAlloc@2:1000") == CUDA_ERROR_INVALID_VALUE); // no CUresult
    REQUIRE(cu().fail("cuMemAlloc@2:3") == CUDA_SUCCESS);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(cu().fail(nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().fail("any@1+") == CUDA_SUCCESS);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cu().cuCtxSynchronize() == CUDA_ERROR_UNKNOWN);
    REQUIRE(cu().fail(nullptr) == CUDA_SUCCESS);
}

TEST_CASE("an error that breaks the context stays") {
    const Device device;
    const Stream stream;
    CUdeviceptr address = 0;
    REQUIRE(cu().fail("cuStreamQuery@1:700") == CUDA_SUCCESS);
    CHECK(cu().cuStreamQuery(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(cu().fail(nullptr) == CUDA_SUCCESS);
    CHECK(cu().cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
}

TEST_CASE("devices and their memory are as many and as large as asked for") {
    configure("devices=3,memory=64MiB");
    const Device device;
    int devices = 0;
    size_t free = 0, total = 0;
    CUdeviceptr address = 0;
    CHECK(cu().cuDeviceGetCount(&devices) == CUDA_SUCCESS);
    CHECK(devices == 3);
    CHECK(cu().cuMemAlloc(&address, size_t(60) << 20) == CUDA_SUCCESS);
    CHECK(cu().cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    CHECK(total == size_t(64) << 20);
    CHECK(free == size_t(4) << 20);
    CHECK(cu().cuMemAlloc(&address, size_t(5) << 20) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("an older driver lacks what came later") {
    configure("driver=12040");
    int version = 0;
    void *found = nullptr;
    int answer = 0;
    CHECK(cu().cuDriverGetVersion(&version) == CUDA_SUCCESS);
    CHECK(version == 12040);
    cu().get_proc_address("cuCtxRecordEvent", &found, 12050, 0, &answer);
    CHECK(found == nullptr);
}

TEST_CASE("memory costs nothing until it is touched") {
    const Device device;
    const Block block(size_t(60) << 30);
    REQUIRE(cu().cuMemsetD8(block + (size_t(59) << 30), 3, 4096) == CUDA_SUCCESS);
    CHECK(byte_at(block + (size_t(59) << 30)) == 3);
    CHECK(counters().device_bytes == size_t(60) << 30);
}

TEST_CASE("calls are counted by their names without version") {
    const Device device;
    const uint64_t before = cu().call_count("cuMemAlloc");
    const Block block(1);
    CHECK(cu().call_count("cuMemAlloc") == before + 1);
    CHECK(counters().device_bytes == 512);
}

TEST_CASE("a forked child has no driver") {
    const Device device;
    const Ending ending = in_child([] {
        CUdeviceptr address = 0;
        const bool none = cu().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                          cu().cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(none ? 7 : 1);
    });
    CHECK(ending.status == 7);
}

TEST_CASE("after exit handlers a driver may be gone") {
    const Ending ending = in_child([] {
        cu().configure("late=1");
        std::atexit([] {
            // Registered before the driver's own handler, so it runs after that handler.
            CUdeviceptr address = 0;
            _exit(cu().cuMemAlloc(&address, 1) == CUDA_ERROR_DEINITIALIZED ? 7 : 1);
        });
        cu().cuInit(0);
        std::exit(1);
    });
    CHECK(ending.status == 7);
}

TEST_CASE("an exported handle keeps its memory until the last descriptor is closed") {
    const Device device;
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0, other = 0;
    int descriptor = -1;
    REQUIRE(cu().cuMemCreate(&handle, 2 << 20, &wanted, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemExportToShareableHandle(
                &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(counters().device_bytes == 2 << 20);
    close(descriptor);
    REQUIRE(cu().cuMemCreate(&other, 2 << 20, &wanted, 0) == CUDA_SUCCESS);
    CHECK(counters().device_bytes == 2 << 20);
    REQUIRE(cu().cuMemRelease(other) == CUDA_SUCCESS);
    CHECK(counters().device_bytes == 0);
}

TEST_CASE("entries with 32-bit addresses refuse a context of today") {
    const Device device;
    unsigned address = 7, size = 7;
    CHECK(cu().optional<CUresult (*)(unsigned *, unsigned)>("cuMemAlloc", 2000)(&address, 4096) ==
          CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cu().optional<CUresult (*)(unsigned *, unsigned *)>("cuMemGetInfo", 2000)(
              &address, &size) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(address == 7);
    CHECK(size == 7);
}
