// A program without emm, for outside_test.py: threads constantly fill, copy and check memory of
// different kinds. It obeys the words on its standard input, and answers each with a line.
#include "driver.h"
#include "own_code.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <iostream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t block_bytes = 4 << 20, piece_bytes = 2 << 20;

void require(CUresult result, const char *what) {
    while (result == CUDA_ERROR_DEINITIALIZED) {
        pause(); // the process ends
    }
    if (result != CUDA_SUCCESS) {
        std::printf("%s: %d\n", what, int(result));
        std::fflush(stdout);
        std::_Exit(3);
    }
}
#define REQUIRE(call) require(call, #call)

constexpr int most_workers = 16;
std::atomic<long> rounds[most_workers], wrong{0};
int workers = 0;
std::atomic<bool> blocks{false};

// Newer headers have a union of the id.
CUmemLocation on_device(int device) {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

CUmemAllocationProp properties(int device = 0) {
    CUmemAllocationProp made = {};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = on_device(device);
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return made;
}

// The access of the memory's device and of those that reach it.
std::vector<CUmemAccessDesc> access_of_all() {
    std::vector<CUmemAccessDesc> all;
    int count = 0;
    REQUIRE(cu.cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++) {
        int reaches = device == 0;
        if (device != 0) {
            REQUIRE(cu.cuDeviceCanAccessPeer(&reaches, device, 0));
        }
        if (reaches != 0) {
            all.push_back({on_device(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
        }
    }
    return all;
}

// Two pieces in one range: the handle of the first goes at once, and the second is mapped twice.
struct Mapped {
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle second = 0;

    Mapped() {
        const CUmemAllocationProp wanted = properties();
        const std::vector<CUmemAccessDesc> access = access_of_all();
        CUmemGenericAllocationHandle first = 0;
        REQUIRE(cu.cuMemAddressReserve(&address, 3 * piece_bytes, 0, 0, 0));
        REQUIRE(cu.cuMemCreate(&first, piece_bytes, &wanted, 0));
        REQUIRE(cu.cuMemCreate(&second, piece_bytes, &wanted, 0));
        REQUIRE(cu.cuMemMap(address, piece_bytes, 0, first, 0));
        REQUIRE(cu.cuMemMap(address + piece_bytes, piece_bytes, 0, second, 0));
        REQUIRE(cu.cuMemMap(address + 2 * piece_bytes, piece_bytes, 0, second, 0));
        REQUIRE(cu.cuMemRelease(first));
        REQUIRE(cu.cuMemSetAccess(address, 3 * piece_bytes, access.data(), access.size()));
    }
};

const Mapped &mapped() {
    static const Mapped made;
    return made;
}

// Memory of the second device, where the program has no context. The first device uses it if
// `mapped`.
CUdeviceptr of_other_device(bool mapped) {
    const CUmemAllocationProp wanted = properties(1);
    const CUmemAccessDesc access = {on_device(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    REQUIRE(cu.cuMemCreate(&handle, block_bytes, &wanted, 0));
    if (mapped) {
        REQUIRE(cu.cuMemAddressReserve(&address, block_bytes, 0, 0, 0));
        REQUIRE(cu.cuMemMap(address, block_bytes, 0, handle, 0));
        REQUIRE(cu.cuMemSetAccess(address, block_bytes, &access, 1));
        REQUIRE(cu.cuMemRelease(handle));
    }
    return address;
}

// Exports the second piece: its descriptor may stay open.
void export_second() {
    int descriptor = -1;
    REQUIRE(cu.cuMemExportToShareableHandle(&descriptor, mapped().second,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

// The handle of the memory at an address is the program's own, and can be mapped again. All devices
// have their former access.
void use_handles() {
    CUmemGenericAllocationHandle found = 0;
    CUmemAllocationProp read = {};
    CUdeviceptr address = 0;
    const CUmemAccessDesc access = {properties().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(cu.cuMemRetainAllocationHandle(
        &found, reinterpret_cast<void *>(mapped().address + 2 * piece_bytes + 1)));
    REQUIRE(cu.cuMemGetAllocationPropertiesFromHandle(&read, found));
    REQUIRE(cu.cuMemAddressReserve(&address, piece_bytes, 0, 0, 0));
    REQUIRE(cu.cuMemMap(address, piece_bytes, 0, found, 0));
    REQUIRE(cu.cuMemSetAccess(address, piece_bytes, &access, 1));
    REQUIRE(cu.cuMemRelease(found));
    REQUIRE(cu.cuMemUnmap(address, piece_bytes));
    for (const CUmemAccessDesc &each : access_of_all()) {
        unsigned long long flags = 0;
        REQUIRE(cu.cuMemGetAccess(&flags, &each.location, mapped().address));
        require(flags == each.flags ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "access");
    }
    const bool is_good = found == mapped().second && read.type == properties().type &&
                         read.requestedHandleTypes == properties().requestedHandleTypes;
    require(is_good ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "handles");
}

// A program may use emm itself.
template <class Function> Function *emm_entry(const char *name) {
    void *const libemm = dlopen("libemm.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *const found = libemm ? dlsym(libemm, name) : nullptr;
    require(found ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, name);
    return reinterpret_cast<Function *>(found);
}

int call_emm(CUcontext context, const std::string &word) {
    void *emm = nullptr;
    if (const int status = emm_entry<int(CUcontext, void **)>("emm_context_from")(context, &emm)) {
        return status;
    }
    if (word == "emm-resume") {
        return emm_entry<int(void *, unsigned)>("emm_context_resume")(emm, 0);
    }
    CUdeviceptr address = 0;
    const int status = emm_entry<int(void *, size_t, CUstream, CUdeviceptr *)>("emm_memalloc")(
        emm, block_bytes, nullptr, &address);
    return status != 0 ? status
                       : emm_entry<int(void *, CUdeviceptr, size_t, CUstream)>("emm_memfree")(
                             emm, address, block_bytes, nullptr);
}

// A thread that constantly allocates and frees by emm.
void call_emm_again_and_again(CUcontext context) {
    std::thread([context] {
        while (call_emm(context, "emm-alloc") == 0) {
        }
        std::_Exit(4);
    }).detach();
}

// emm's pressure callback of this program, and the number of its calls.
std::atomic<int> pressed{0};

size_t press(void *, size_t, void *) {
    pressed++;
    return 0;
}

void set_callback() {
    using Set = int(size_t(*)(void *, size_t, void *), void *);
    const int status = emm_entry<Set>("emm_set_pressure_callback")(&press, nullptr);
    require(status == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "callback");
}

// Exports a range by the driver's range handle, as a network card gets it.
void export_range(CUdeviceptr address) {
    int descriptor = -1;
    REQUIRE(cu.cuMemGetHandleForAddressRange(&descriptor, address, block_bytes,
                                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

#if CUDA_VERSION >= 12010
// Binds a piece of cuMemCreate by its handle, and a block by its address.
void bind_to_multicast(bool by_address) {
    CUmulticastObjectProp wanted = {};
    wanted.numDevices = 1;
    wanted.size = piece_bytes;
    CUmemGenericAllocationHandle object = 0;
    REQUIRE(entry_of<decltype(cuMulticastCreate)>("cuMulticastCreate", 12010)(&object, &wanted));
    REQUIRE(entry_of<decltype(cuMulticastAddDevice)>("cuMulticastAddDevice", 12010)(object, 0));
    if (!by_address) {
        return REQUIRE(entry_of<decltype(cuMulticastBindMem)>("cuMulticastBindMem", 12010)(
            object, 0, mapped().second, 0, piece_bytes, 0));
    }
    CUdeviceptr address = 0;
    REQUIRE(cu.cuMemAlloc(&address, block_bytes));
    REQUIRE(entry_of<decltype(cuMulticastBindAddr)>("cuMulticastBindAddr",
                                                    12010)(object, 0, address, piece_bytes, 0));
}
#endif

// The driver knows neither this handle nor these flags.
void fail_to_export() {
    int descriptor = -1;
    const bool is_refused =
        cu.cuMemExportToShareableHandle(&descriptor, mapped().second, CU_MEM_HANDLE_TYPE_WIN32,
                                        0) != CUDA_SUCCESS &&
        cu.cuMemGetHandleForAddressRange(&descriptor, mapped().address, piece_bytes,
                                         CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                         ~0ull) != CUDA_SUCCESS;
    require(is_refused ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "refused exports");
}

CUdeviceptr of_own_pool(CUstream stream) {
    CUmemPoolProps wanted = {};
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = on_device(0);
    CUmemoryPool pool = nullptr;
    cuuint64_t most = ~cuuint64_t(0);
    CUdeviceptr address = 0;
    REQUIRE(cu.cuMemPoolCreate(&pool, &wanted));
    REQUIRE(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most));
    REQUIRE(cu.cuMemAllocFromPoolAsync(&address, block_bytes, pool, stream));
    return address;
}

struct Worker {
    int number;
    std::string kind;
    CUcontext context;

    CUdeviceptr memory(CUstream stream) const {
        CUdeviceptr address = 0;
        if (kind == "mapped") {
            return mapped().address;
        }
        if (kind == "peer") {
            return of_other_device(true);
        }
        if (kind == "pool") {
            return of_own_pool(stream);
        }
        REQUIRE(kind == "async" ? cu.cuMemAllocAsync(&address, block_bytes, stream)
                                : cu.cuMemAlloc(&address, block_bytes));
        return address;
    }

    // The first half keeps its initial content, the second half changes.
    void work() const {
        CUstream stream = nullptr;
        REQUIRE(cu.cuCtxSetCurrent(context));
        REQUIRE(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        const CUdeviceptr address = memory(stream);
        const size_t half = kind == "mapped" ? piece_bytes : block_bytes / 2;
        std::vector<unsigned char> bytes(2 * half);
        REQUIRE(cu.cuMemsetD8Async(address, 0xa5, half, stream));
        for (unsigned char round = 0;; round++) {
            CUdeviceptr other = 0;
            REQUIRE(cu.cuMemsetD8Async(address + half, round, half, stream));
            REQUIRE(cu.cuMemcpyDtoHAsync(bytes.data(), address, bytes.size(), stream));
            if (cu.cuMemAllocAsync(&other, 1 << 16, stream) ==
                CUDA_SUCCESS) { // unless a test's fault
                REQUIRE(cu.cuMemFreeAsync(other, stream));
            }
            REQUIRE(cu.cuStreamSynchronize(stream));
            wrong += bytes.front() != 0xa5 || bytes[half - 1] != 0xa5 || bytes[half] != round ||
                     bytes.back() != round;
            rounds[number]++;
        }
    }
};

void CUDA_CB wait_in_host_function(void *) {
    while (blocks) {
        usleep(1000);
    }
}

// Obeys one word of the test. Gives the answer.
struct Obey {
    CUcontext context;
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUdeviceptr exported = 0, last = 0;

    std::string fork_child() const {
        const pid_t child = fork();
        if (child == 0) {
            CUdeviceptr address = 0;
            _exit(cu.cuMemAlloc(&address, 1 << 20) == CUDA_SUCCESS ? 1 : 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        return status == 0 ? "child ended" : "child failed";
    }

    // The event's work comes first, whether it has ended or not.
    void wait_for_event() const {
        CUevent event = nullptr;
        REQUIRE(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        REQUIRE(cu.cuEventRecord(event, stream));
        REQUIRE(cu.cuStreamWaitEvent(stream, event, 0));
    }

    // The driver checks the addresses in the graph.
    void instantiate() const {
        CUgraph made = nullptr;
        CUgraphExec ready = nullptr;
        REQUIRE(cu.cuGraphCreate(&made, 0));
        REQUIRE(cu.cuGraphInstantiate(&ready, made, 0));
    }

    std::string answer(const std::string &word) {
        if (word == "count") {
            std::string line = std::to_string(wrong);
            for (int i = 0; i < workers; i++) {
                line += " " + std::to_string(rounds[i]);
            }
            return line;
        } else if (word == "block") {
            blocks = true;
            REQUIRE(cu.cuLaunchHostFunc(stream, &wait_in_host_function, nullptr));
        } else if (word == "unblock") {
            blocks = false;
            REQUIRE(cu.cuStreamSynchronize(stream));
        } else if (word == "capture") {
            REQUIRE(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        } else if (word == "end-capture") {
            REQUIRE(cu.cuStreamEndCapture(stream, &graph));
        } else if (word.starts_with("fault ")) {
            entry_of<int(const char *)>("simcuda_fail")(word.c_str() + 6);
        } else if (word == "export") {
            export_second();
        } else if (word == "unreached") {
            of_other_device(false);
        } else if (word == "allocate") {
            REQUIRE(cu.cuMemAlloc(&last, block_bytes));
        } else if (word == "free") {
            REQUIRE(cu.cuMemFree(last));
        } else if (word == "ipc") {
            CUdeviceptr address = 0;
            CUipcMemHandle handle;
            REQUIRE(cu.cuMemAlloc(&address, block_bytes));
            REQUIRE(cu.cuIpcGetMemHandle(&handle, address));
        } else if (word == "range") {
            REQUIRE(cu.cuMemAlloc(&exported, block_bytes));
            export_range(exported);
        } else if (word == "range-of-pool") {
            exported = of_own_pool(stream);
            export_range(exported);
        } else if (word == "free-range") {
            REQUIRE(cu.cuMemFreeAsync(exported, stream));
#if CUDA_VERSION >= 12010
        } else if (word.starts_with("bind")) {
            bind_to_multicast(word == "bind-address");
#endif
        } else if (word == "fail-export") {
            fail_to_export();
        } else if (word == "emm-loop") {
            call_emm_again_and_again(context);
        } else if (word.starts_with("emm-")) {
            return std::to_string(call_emm(context, word));
        } else if (word.starts_with("own-")) {
            return own_code::obey(context, word);
        } else if (word == "wait") {
            wait_for_event();
        } else if (word == "instantiate") {
            instantiate();
        } else if (word == "callback") {
            set_callback();
        } else if (word == "headers") {
            return std::to_string(CUDA_VERSION);
        } else if (word == "pressed") {
            return std::to_string(pressed);
        } else if (word == "handles") {
            use_handles();
        } else if (word == "fork") {
            return fork_child();
        }
        return word;
    }
};

} // namespace

// KIND...: a thread for each.
int main(int count, char **words) {
    const std::string problem = find_driver("dlsym");
    if (!problem.empty()) {
        std::printf("%s\n", problem.c_str());
        return 3;
    }
    CUdevice device = 0;
    CUcontext context = nullptr;
    REQUIRE(cu.cuInit(0));
    REQUIRE(cu.cuDeviceGet(&device, 0));
    REQUIRE(cu.cuDevicePrimaryCtxRetain(&context, device));
    REQUIRE(cu.cuCtxSetCurrent(context));
    std::at_quick_exit([] {
        CUdeviceptr ptr = 0;
        cu.cuMemAlloc(&ptr, block_bytes);
    });
    Obey obey = {context};
    REQUIRE(cu.cuStreamCreate(&obey.stream, CU_STREAM_NON_BLOCKING));
    for (workers = 0; workers + 1 < count && workers < most_workers; workers++) {
        std::thread([worker = Worker{workers, words[workers + 1], context}] {
            worker.work();
        }).detach();
    }
    std::string word;
    while (std::getline(std::cin, word) && word != "exit" && word != "quick-exit") {
        std::cout << obey.answer(word) << std::endl;
    }
    if (word == "quick-exit") {
        std::quick_exit(0);
    }
    std::exit(0);
}
