// Shared by the questions of aliases.cu: pieces, places, and the kernels that write and read.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace {

using Count = unsigned long long;
constexpr size_t MiB = 1 << 20;
constexpr size_t window = 32768; // words: 128 KiB fit into L1, where stale lines would stay
constexpr unsigned threads = 256, tile_words = 4096;
unsigned blocks = 0; // one for each multiprocessor, so that each one's L1 takes part
int status = 0;

struct Error {
    std::string text;
};

void check(CUresult result, const char *call) {
    const char *name = "unknown error";
    if (result != CUDA_SUCCESS) {
        cuGetErrorName(result, &name);
        throw Error{std::string(call) + ": " + name};
    }
}

void check(cudaError_t result, const char *call) {
    if (result != cudaSuccess) {
        throw Error{std::string(call) + ": " + cudaGetErrorName(result)};
    }
}

#define DO(call) check(call, #call)

void say(const char *kind, const char *format, ...) {
    printf("%-9s  ", kind);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

void promise(const std::string &what, Count wrong) {
    say("promised", "%s: %llu wrong words", what.c_str(), wrong);
    status = wrong ? 1 : status;
}

double timed(const std::function<void()> &work) { // microseconds
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
}

std::string figures(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    const size_t n = times.size();
    char text[96];
    snprintf(text, sizeof text, "p50 %.1f, p99 %.1f, max %.1f us", n ? times[n / 2] : 0,
             n ? times[n * 99 / 100] : 0, n ? times[n - 1] : 0);
    return text;
}

// The end of a question's process gives everything back.

CUmemAllocationProp properties() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

struct Piece { // physical memory of device 0
    explicit Piece(size_t bytes) : size(bytes) {
        const CUmemAllocationProp prop = properties();
        DO(cuMemCreate(&handle, size, &prop, 0));
    }
    size_t size;
    CUmemGenericAllocationHandle handle = 0;
};

struct Place { // an address for it
    explicit Place(size_t bytes) : size(bytes) { DO(cuMemAddressReserve(&at, size, 0, 0, 0)); }
    explicit Place(const Piece &piece, unsigned devices = 1) : Place(piece.size) {
        map(piece);
        permit(devices);
    }
    void map(const Piece &piece) { DO(cuMemMap(at, size, 0, piece.handle, 0)); }
    void permit(unsigned devices = 1) {
        CUmemAccessDesc access[2] = {};
        for (unsigned i = 0; i < devices; i++) {
            access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[i].location.id = int(i);
            access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
        DO(cuMemSetAccess(at, size, access, devices));
    }
    void unmap() { DO(cuMemUnmap(at, size)); }
    unsigned *words() const { return reinterpret_cast<unsigned *>(at); }
    size_t size;
    CUdeviceptr at = 0;
};

template <class T> T *zeroed(size_t count = 1) {
    void *memory;
    DO(cudaMalloc(&memory, count * sizeof(T)));
    DO(cudaMemset(memory, 0, count * sizeof(T)));
    DO(cudaDeviceSynchronize());
    return static_cast<T *>(memory);
}

Count take(Count *count) { // waits for the current device
    Count found;
    DO(cudaDeviceSynchronize());
    DO(cudaMemcpy(&found, count, 8, cudaMemcpyDeviceToHost));
    DO(cudaMemset(count, 0, 8));
    DO(cudaDeviceSynchronize());
    return found;
}

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream;
    DO(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

cudaEvent_t new_event() {
    cudaEvent_t event;
    DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

// ---- Kernels. Word i holds base + i * step; every block checks all words of a window, or its
// share of more.

#define LOADER(name, instruction)                                                                  \
    __device__ unsigned name(const unsigned *p) {                                                  \
        unsigned word;                                                                             \
        asm volatile(instruction ".u32 %0, [%1];" : "=r"(word) : "l"(p) : "memory");               \
        return word;                                                                               \
    }
LOADER(load, "ld.global") // through L1
LOADER(load_read_only, "ld.global.nc")
LOADER(acquire, "ld.acquire.gpu")
#define FENCE(name) asm volatile("fence.proxy." name ";" ::: "memory")

__device__ unsigned shared(const void *p) {
    return unsigned(__cvta_generic_to_shared(p));
}

__device__ Count nanoseconds() {
    Count time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ void spin(Count duration) {
    for (const Count start = nanoseconds(); nanoseconds() - start < duration;) {
    }
}

__device__ void put(unsigned *p, size_t n, unsigned base) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += stride) {
        p[i] = base + unsigned(i);
    }
}

template <class Load>
__device__ void look(Load word, size_t n, unsigned base, unsigned step, Count *wrong) {
    const bool shares = n > window;
    const size_t first = shares ? blockIdx.x * size_t(blockDim.x) : 0;
    const size_t stride = shares ? gridDim.x * size_t(blockDim.x) : blockDim.x;
    for (size_t i = first + threadIdx.x; i < n; i += stride) {
        if (word(i) != base + unsigned(i) * step) {
            atomicAdd(wrong, 1ull);
        }
    }
}

__global__ void occupy(Count duration) {
    spin(duration);
}

__global__ void fill(unsigned *p, size_t n, unsigned base, Count delay) {
    spin(delay);
    put(p, n, base);
}

__global__ void verify(const unsigned *p, size_t n, unsigned base, unsigned step, Count *wrong) {
    look([p](size_t i) { return load(p + i); }, n, base, step, wrong);
}

__global__ void verify_read_only(const unsigned *p, unsigned base, unsigned step, Count *wrong) {
    look([p](size_t i) { return load_read_only(p + i); }, window, base, step, wrong);
}

__global__ void verify_texture(cudaTextureObject_t texture, unsigned base, unsigned step,
                               Count *wrong) {
    look([texture](size_t i) { return tex1Dfetch<unsigned>(texture, int(i)); }, window, base, step,
         wrong);
}

__global__ void verify_bulk(const unsigned *p, unsigned base, unsigned step, Count *wrong) {
    __shared__ alignas(128) unsigned tile[tile_words];
    __shared__ alignas(8) Count barrier;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&barrier)) : "memory");
        FENCE("async.shared::cta");
    }
    __syncthreads();
    for (unsigned first = 0, phase = 0; first < window; first += tile_words, phase ^= 1) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %2;\n"
                         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                         "[%1], [%3], %2, [%0];" ::"r"(shared(&barrier)),
                         "r"(shared(tile)), "r"(tile_words * 4),
                         "l"(__cvta_generic_to_global(p + first))
                         : "memory");
        }
        for (unsigned done = 0; !done;) {
            asm volatile("{\n .reg .pred p;\n"
                         " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                         " selp.u32 %0, 1, 0, p;\n}"
                         : "=r"(done)
                         : "r"(shared(&barrier)), "r"(phase)
                         : "memory");
        }
        look([](size_t i) { return tile[i]; }, tile_words, base + first * step, step, wrong);
        __syncthreads();
    }
}

__global__ void fill_bulk(unsigned *p, unsigned base) { // a block for each tile
    __shared__ alignas(128) unsigned tile[tile_words];
    const unsigned first = blockIdx.x * tile_words;
    for (unsigned i = threadIdx.x; i < tile_words; i += blockDim.x) {
        tile[i] = base + first + i;
    }
    FENCE("async.shared::cta");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                     "cp.async.bulk.commit_group;\n"
                     "cp.async.bulk.wait_group 0;" ::"l"(__cvta_generic_to_global(p + first)),
                     "r"(shared(tile)), "r"(tile_words * 4)
                     : "memory");
    }
}

// A reader that is on the GPU before the writer's end.
struct Care {
    bool wait;    // for the grid before it
    bool touched; // it has read the words before, so that they lie in its L1
    bool fence;   // fence.proxy.alias
};

__global__ void early_writer(unsigned *p, unsigned base, bool trigger, Count *ended) {
    if (trigger) {
        cudaTriggerProgrammaticLaunchCompletion();
    }
    spin(50000);
    put(p, window, base);
    atomicMax(ended, nanoseconds());
}

__global__ void early_reader(const unsigned *p, unsigned base, Care care, const Count *ended,
                             Count *overlaps, Count *wrong) {
    const Count start = nanoseconds();
    for (size_t i = threadIdx.x; care.touched && i < window; i += blockDim.x) {
        load(p + i);
    }
    if (care.wait) {
        cudaGridDependencySynchronize();
    }
    if (care.fence) {
        FENCE("alias");
    }
    if (blockIdx.x + threadIdx.x == 0 && start < *static_cast<const volatile Count *>(ended)) {
        atomicAdd(overlaps, 1ull);
    }
    look([p](size_t i) { return load(p + i); }, window, base, 1, wrong);
}

struct Flags {
    unsigned ready, raised, late;
};

__device__ void await(const unsigned *flag, unsigned value, Flags *flags) {
    const Count start = nanoseconds();
    while (acquire(flag) < value && acquire(&flags->late) == 0) {
        if (nanoseconds() - start > 1000000000) { // a lost flag ends the question, not the machine
            atomicAdd(&flags->late, 1);
        }
    }
}

__global__ void await_ready(Flags *flags, unsigned value) {
    await(&flags->ready, value, flags);
}

__global__ void raise_flag(Flags *flags, unsigned value) {
    asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(&flags->raised), "r"(value) : "memory");
}

__global__ void resident(const unsigned *p, unsigned rounds, Care care, Flags *flags,
                         Count *wrong) {
    for (unsigned round = 1; round <= rounds && acquire(&flags->late) == 0; round++) {
        for (size_t i = threadIdx.x; care.touched && i < window; i += blockDim.x) {
            load(p + i);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(&flags->ready, 1);
        }
        await(&flags->raised, round, flags); // each thread acquires for itself
        if (care.fence) {
            FENCE("alias");
        }
        look([p](size_t i) { return load(p + i); }, window, round * 1000003, 1, wrong);
        __syncthreads();
    }
}

} // namespace
