// The promises of a pause, tried on a device:
//
//     EMM_PLUGIN=pool pause [MIB [CYCLES]]      4096 MiB and 100 cycles unless given
//
// A captured graph over a named pool replays to the bit after the pool was paused and another
// process has used the memory; CYCLES pauses and resumes leave nothing behind; and what the copies
// of EMM_PAUSE_KEEP cost beside the bus. Exits with 1 if a promise is broken; speed decides
// nothing. On the simulated driver there are no kernels: copies and sets stand in for them in the
// graph.
#include <emm/cuda.h>
#include <emm/emm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t mib = size_t(1) << 20;

// A driver entry with its CUDA 12.0 signature.
#define CU(name) reinterpret_cast<EMM_CUDA_TYPE(name)>(emm_driver_entry(#name, EMM_CUDA_SIGNATURES))

[[noreturn]] void give_up(const std::string &text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    std::_Exit(2);
}

void need(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS) {
        give_up(std::string(call) + ": CUDA error " + std::to_string(result));
    }
}
#define NEED(name, ...)                                                                            \
    need(reinterpret_cast<EMM_CUDA_TYPE(name)>(emm_driver_entry(#name, EMM_CUDA_SIGNATURES))(      \
             __VA_ARGS__),                                                                         \
         #name)

int broken = 0;

void promise(bool kept, const std::string &text) {
    std::printf("%s  %s\n", kept ? "  ok" : "FAIL", text.c_str());
    broken += !kept;
}

emm_context *enter_device() {
    emm_context *const gpu = emm::context_for_device(0);
    NEED(cuCtxSetCurrent,
         emm::detail::told_by<emm_context_info>(emm_context_get_info, gpu).cuda_context);
    return gpu;
}

double seconds_of(const auto &function) {
    const auto begun = std::chrono::steady_clock::now();
    function();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

double gb_per_s(size_t bytes, double seconds) {
    return double(bytes) / 1e9 / seconds;
}

// --- the other process: takes the memory, writes all of it and gives it back

int use_memory(size_t bytes) {
    enter_device();
    CUdeviceptr ptr = 0;
    NEED(cuMemAlloc, &ptr, bytes);
    NEED(cuMemsetD8, ptr, 0xee, bytes);
    NEED(cuCtxSynchronize, );
    NEED(cuMemFree, ptr);
    return 0;
}

bool let_another_process_use(size_t bytes) {
    const std::string text = std::to_string(bytes);
    const pid_t child = fork();
    if (child == 0) {
        setenv("EMM_PLUGIN", "passthrough", 1);
        execl("/proc/self/exe", "pause", "use", text.c_str(), nullptr);
        _exit(3);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

// --- a graph

// x = 1664525 * x + 1013904223, for each word.
const char *const kernel_text = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 words, .param .u64 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.wide.u32 %rd3, %r1, %r2, 0;
    cvt.u64.u32 %rd4, %r3;
    add.s64 %rd3, %rd3, %rd4;
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra DONE;
    shl.b64 %rd3, %rd3, 2;
    add.s64 %rd5, %rd1, %rd3;
    ld.global.u32 %r4, [%rd5];
    mad.lo.u32 %r5, %r4, 1664525, 1013904223;
    st.global.u32 [%rd5], %r5;
DONE:
    ret;
}
)";

bool is_simulated() {
    return emm::detail::told_by<emm_driver_info>(emm_get_driver).simulated;
}

CUfunction find_kernel() {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    const auto load = CU(cuModuleLoadData);
    if (is_simulated() || !load) {
        return nullptr;
    }
    need(load(&module, kernel_text), "cuModuleLoadData");
    NEED(cuModuleGetFunction, &function, module, "step");
    return function;
}

// weights -> memory that the capture allocates -> output, with a step of the kernel between.
class Graph {
public:
    Graph(emm_context *pool, CUstream stream, CUdeviceptr weights, CUdeviceptr output, size_t bytes)
        : stream_(stream) {
        const CUfunction kernel = find_kernel();
        emm::check(emm_capture_begin(pool, stream));
        NEED(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        emm_deviceptr inside = 0;
        emm::check(emm_memalloc(pool, bytes, stream, &inside));
        NEED(cuMemcpyDtoDAsync, inside, weights, bytes, stream);
        NEED(cuMemsetD8Async, inside + bytes / 2, 0x3c, bytes / 4, stream);
        if (kernel) {
            uint64_t words = inside, count = bytes / 4;
            void *arguments[] = {&words, &count};
            NEED(cuLaunchKernel, kernel, unsigned((count + 255) / 256), 1, 1, 256, 1, 1, 0, stream,
                 arguments, nullptr);
        }
        NEED(cuMemcpyDtoDAsync, output, inside, bytes, stream);
        emm::check(emm_memfree(pool, inside, bytes, stream));
        CUgraph graph = nullptr;
        NEED(cuStreamEndCapture, stream, &graph);
        emm::check(emm_capture_end(pool, stream));
        const auto instantiate =
            reinterpret_cast<CUresult(CUDAAPI *)(CUgraphExec *, CUgraph, unsigned long long)>(
                emm_driver_entry("cuGraphInstantiateWithFlags", 11040));
        need(instantiate(&exec_, graph, 0), "cuGraphInstantiate");
        NEED(cuGraphDestroy, graph);
    }
    ~Graph() { CU(cuGraphExecDestroy)(exec_); }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    void launch() const {
        NEED(cuGraphLaunch, exec_, stream_);
        NEED(cuStreamSynchronize, stream_);
    }

private:
    CUstream stream_;
    CUgraphExec exec_ = nullptr;
};

using Words = std::vector<uint32_t>;

Words random_words(size_t bytes) {
    Words words(bytes / sizeof(uint32_t));
    uint64_t state = 1;
    for (uint32_t &word : words) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = uint32_t(state >> 32);
    }
    return words;
}

Words read(CUdeviceptr ptr, size_t bytes) {
    Words words(bytes / sizeof(uint32_t));
    NEED(cuMemcpyDtoH, words.data(), ptr, bytes);
    return words;
}

// --- the traces that a cycle may leave

size_t free_device_bytes() {
    size_t free = 0, total = 0;
    NEED(cuMemGetInfo, &free, &total);
    return free;
}

size_t resident_kib() {
    size_t pages = 0, resident = 0;
    std::FILE *const file = std::fopen("/proc/self/statm", "r");
    if (!file || std::fscanf(file, "%zu %zu", &pages, &resident) != 2) {
        give_up("/proc/self/statm cannot be read");
    }
    std::fclose(file);
    return resident * size_t(sysconf(_SC_PAGESIZE)) / 1024;
}

size_t descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

void cycles(emm_context *pool, int count) {
    size_t device = 0, host = 0, open = 0;
    for (int i = 0; i < count; i++) {
        emm::pause(pool, i % 2 ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD);
        emm::resume(pool, i % 3 ? EMM_RESUME_KEEP_COPY : 0);
        if (i == count / 10) { // the first pauses make objects that the driver keeps
            emm::resume(pool);
            device = free_device_bytes();
            host = resident_kib();
            open = descriptors();
        }
    }
    emm::resume(pool); // drops the copy's memory
    const size_t device_after = free_device_bytes(), host_after = resident_kib();
    promise(device_after + 2 * mib >= device,
            std::to_string(count) + " cycles: free on the device " + std::to_string(device) +
                " bytes, afterwards " + std::to_string(device_after));
    // The simulated device's memory is this process's.
    promise(is_simulated() || host_after <= host + 16 * 1024,
            "resident " + std::to_string(host) + " KiB, afterwards " + std::to_string(host_after));
    promise(descriptors() <= open, "descriptors " + std::to_string(open) + ", afterwards " +
                                       std::to_string(descriptors()));
}

// --- speed

struct Bus {
    double to_host, to_device; // GB/s
};

// Pinned memory, one copy at a time, the best of five.
Bus measure_bus(CUdeviceptr ptr, size_t bytes) {
    void *host = nullptr;
    NEED(cuMemHostAlloc, &host, bytes, 0);
    Bus bus = {};
    for (int i = 0; i < 5; i++) {
        const double out = seconds_of([&] { NEED(cuMemcpyDtoH, host, ptr, bytes); });
        const double in = seconds_of([&] {
            NEED(cuMemcpyHtoD, ptr, host, bytes);
            NEED(cuCtxSynchronize, );
        });
        bus.to_host = std::max(bus.to_host, gb_per_s(bytes, out));
        bus.to_device = std::max(bus.to_device, gb_per_s(bytes, in));
    }
    NEED(cuMemFreeHost, host);
    return bus;
}

// `bytes` are live; `ptr` is a block of `block` bytes.
void speed(emm_context *pool, CUdeviceptr ptr, size_t block, size_t bytes) {
    const Bus bus = measure_bus(ptr, std::min(block, 1024 * mib));
    std::printf("      the bus: %.1f GB/s to the host, %.1f GB/s to the device\n", bus.to_host,
                bus.to_device);
    for (int i = 1; i <= 5; i++) {
        const double slept = seconds_of([&] { emm::pause(pool); });
        const double woke = seconds_of([&] { emm::resume(pool, EMM_RESUME_KEEP_COPY); });
        std::printf("      KEEP, pause %d: %.3f s, %.1f GB/s, %.0f %% of the bus; resume: %.3f s, "
                    "%.1f GB/s, %.0f %%%s\n",
                    i, slept, gb_per_s(bytes, slept), 100 * gb_per_s(bytes, slept) / bus.to_host,
                    woke, gb_per_s(bytes, woke), 100 * gb_per_s(bytes, woke) / bus.to_device,
                    i == 1 ? " (the first: the host's memory is pinned)" : "");
    }
    emm::resume(pool);
    for (int i = 1; i <= 2; i++) {
        const double slept = seconds_of([&] { emm::pause(pool, EMM_PAUSE_DISCARD); });
        const double woke = seconds_of([&] { emm::resume(pool); });
        std::printf("      DISCARD: pause %.3f s, resume %.3f s\n", slept, woke);
    }
}

int run(size_t bytes, int count) {
    emm_context *const gpu = enter_device(), *const pool = emm::context_named(gpu, "weights");
    CUstream stream = nullptr;
    NEED(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    {
        const emm::StreamRegistration registration(gpu, stream);
        const size_t part = bytes / 4 / 4096 * 4096;
        emm_deviceptr weights = 0, output = 0, gap = 0;
        emm::check(emm_memalloc(pool, 2 * part, stream, &weights));
        emm::check(emm_memalloc(pool, part / 2, stream, &gap));
        emm::check(emm_memalloc(pool, part, stream, &output));
        emm::check(emm_memfree(pool, gap, part / 2, stream));
        const Words content = random_words(2 * part);
        NEED(cuMemcpyHtoD, weights, content.data(), 2 * part);
        {
            const Graph graph(pool, stream, weights, output, part);
            graph.launch();
            const Words wanted = read(output, part);
            NEED(cuMemsetD8, output, 0, part);
            NEED(cuCtxSynchronize, );
            const uint64_t reserved = emm::stats(pool).reserved_bytes;
            const size_t before = free_device_bytes();
            const size_t released = emm::pause(pool);
            promise(released >= reserved / 100 * 97, "of " + std::to_string(reserved) +
                                                         " bytes reserved " +
                                                         std::to_string(released) + " went back");
            const size_t more = free_device_bytes() - before;
            promise(more >= released / 100 * 97, // the driver takes some memory for pinning
                    "the device has " + std::to_string(more) + " bytes more free");
            promise(let_another_process_use(released / 100 * 95),
                    "another process has written to as much meanwhile");
            emm::resume(pool, EMM_RESUME_KEEP_COPY);
            promise(read(weights, 2 * part) == content, "the content came back, bit by bit");
            graph.launch();
            promise(read(output, part) == wanted, "the graph replays to the bit");
        }
        speed(pool, weights, 2 * part, 3 * part);
        cycles(pool, count);
        emm::check(emm_memfree(pool, weights, 2 * part, stream));
        emm::check(emm_memfree(pool, output, part, stream));
    }
    NEED(cuStreamDestroy, stream);
    return broken != 0;
}

} // namespace

int main(int count, char **arguments) {
    try {
        if (count == 3 && std::strcmp(arguments[1], "use") == 0) {
            return use_memory(std::strtoull(arguments[2], nullptr, 10));
        }
        const size_t size = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 4096;
        return run(size * mib, count > 2 ? std::atoi(arguments[2]) : 100);
    } catch (const std::exception &error) {
        give_up(error.what());
    }
}
