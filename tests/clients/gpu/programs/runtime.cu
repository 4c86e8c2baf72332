// A program on the CUDA runtime, which knows nothing of emm: every call that gives or takes memory, or says what memory
// is, on a device and in a graph. It prints what it finds; the exit status is 1 if a call failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

#define CHECK(call) check((call), #call)

static void check(cudaError_t error, const char *call) {
    if (error != cudaSuccess) {
        std::printf("%s: %s\n", call, cudaGetErrorName(error));
        std::exit(1);
    }
}

constexpr int count = 1 << 20;
constexpr size_t bytes = count * sizeof(float);

__global__ void fill(float *data, float value) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        data[i] = value + float(i % 7);
    }
}

__global__ void twice(float *data) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        data[i] *= 2;
    }
}

static void print_sum(const char *what, const float *data) {
    std::vector<float> copy(count);
    CHECK(cudaMemcpy(copy.data(), data, bytes, cudaMemcpyDefault));
    double sum = 0;
    for (float value : copy) {
        sum += value;
    }
    std::printf("%s: sum %.0f\n", what, sum);
}

static void print_attributes(const char *what, const void *ptr) {
    cudaPointerAttributes found;
    CHECK(cudaPointerGetAttributes(&found, ptr));
    std::printf("%s: type %d, device %d, device address %s, host address %s\n", what, int(found.type), found.device,
                found.devicePointer == ptr ? "the same" : found.devicePointer ? "another" : "none",
                found.hostPointer == ptr ? "the same" : found.hostPointer ? "another" : "none");
}

static void use(const char *what, float *data) {
    fill<<<64, 256>>>(data, 1);
    twice<<<64, 256>>>(data);
    CHECK(cudaGetLastError());
    print_sum(what, data);
    print_attributes(what, data);
}

static void device_memory() {
    float *data, *more;
    CHECK(cudaMalloc(&data, bytes));
    CHECK(cudaMalloc(&more, bytes));
    use("cudaMalloc", data);
    use("cudaMalloc again", more);
    CHECK(cudaFree(data));
    CHECK(cudaFree(more));
    CHECK(cudaFree(nullptr));
    void *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, 1000, 16));
    std::printf("cudaMallocPitch: %zu\n", pitch);
    CHECK(cudaMemset2D(rows, pitch, 1, 1000, 16));
    CHECK(cudaFree(rows));
    cudaPitchedPtr cube;
    CHECK(cudaMalloc3D(&cube, make_cudaExtent(100, 10, 10)));
    std::printf("cudaMalloc3D: %zu, %zu, %zu\n", cube.pitch, cube.xsize, cube.ysize);
    CHECK(cudaFree(cube.ptr));
    CHECK(cudaMallocManaged(&data, bytes));
    use("cudaMallocManaged", data);
    data[0] = 5;
    CHECK(cudaFree(data));
    cudaArray_t array;
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&array, &format, 64, 64));
    CHECK(cudaFreeArray(array));
    std::printf("cudaMalloc of too much: %s\n", cudaGetErrorName(cudaMalloc(&data, size_t(1) << 50)));
    std::printf("the last error: %s, then %s\n", cudaGetErrorName(cudaGetLastError()),
                cudaGetErrorName(cudaGetLastError()));
}

static void stream_memory() {
    cudaStream_t stream, other;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    float *data;
    for (int i = 0; i < 100; i++) {
        CHECK(cudaMallocAsync(&data, bytes, stream));
        fill<<<64, 256, 0, stream>>>(data, float(i));
        CHECK(cudaFreeAsync(data, stream));
    }
    CHECK(cudaMallocAsync(&data, bytes, stream));
    CHECK(cudaStreamSynchronize(stream));
    use("cudaMallocAsync", data);
    CHECK(cudaFreeAsync(data, other));
    CHECK(cudaMallocAsync(&data, bytes, stream));
    CHECK(cudaFree(data));
    CHECK(cudaMalloc(&data, bytes));
    CHECK(cudaFreeAsync(data, stream));
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMallocFromPoolAsync(&data, bytes, pool, stream));
    CHECK(cudaFreeAsync(data, stream));
    cudaMemPoolProps own = {};
    own.allocType = cudaMemAllocationTypePinned;
    own.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool, &own));
    CHECK(cudaMallocFromPoolAsync(&data, bytes, pool, stream));
    CHECK(cudaFreeAsync(data, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
}

static void host_memory() {
    float *host, *mapped;
    CHECK(cudaMallocHost(&host, bytes));
    std::memset(host, 0, bytes);
    use("cudaMallocHost", host);
    CHECK(cudaFreeHost(host));
    CHECK(cudaHostAlloc(&host, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    unsigned int flags;
    CHECK(cudaHostGetFlags(&flags, host));
    CHECK(cudaHostGetDevicePointer(&mapped, host, 0));
    std::printf("cudaHostAlloc: flags %u, device address %s\n", flags, mapped == host ? "the same" : "another");
    CHECK(cudaFreeHost(host));
    std::vector<float> own(count);
    CHECK(cudaHostRegister(own.data(), bytes, cudaHostRegisterDefault));
    print_attributes("cudaHostRegister", own.data());
    std::printf("again: %s\n", cudaGetErrorName(cudaHostRegister(own.data(), bytes, cudaHostRegisterDefault)));
    cudaGetLastError();
    CHECK(cudaHostUnregister(own.data()));
}

// The memory that a graph uses is freed before the graph is launched for the last time.
static void graphs() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    float *kept;
    CHECK(cudaMalloc(&kept, bytes));
    cudaGraph_t graph;
    cudaGraphExec_t launched;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    float *inside;
    CHECK(cudaMallocAsync(&inside, bytes, stream));
    fill<<<64, 256, 0, stream>>>(inside, 3);
    CHECK(cudaMemcpyAsync(kept, inside, bytes, cudaMemcpyDeviceToDevice, stream));
    twice<<<64, 256, 0, stream>>>(kept);
    CHECK(cudaFreeAsync(inside, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launched, graph, 0));
    for (int i = 0; i < 5; i++) {
        CHECK(cudaGraphLaunch(launched, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    print_sum("a graph", kept);
    CHECK(cudaGraphExecDestroy(launched));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(kept));
    CHECK(cudaStreamDestroy(stream));
}

static void from_a_thread(int number, double *ret_sum) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    float *data;
    std::vector<float> copy(count);
    for (int i = 0; i < 50; i++) {
        CHECK(cudaMalloc(&data, bytes));
        fill<<<64, 256, 0, stream>>>(data, float(number));
        CHECK(cudaMemcpyAsync(copy.data(), data, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFree(data));
    }
    CHECK(cudaStreamSynchronize(stream));
    for (float value : copy) {
        *ret_sum += value;
    }
    CHECK(cudaStreamDestroy(stream));
}

static void threads() {
    double sums[4] = {};
    std::vector<std::thread> running;
    for (int i = 0; i < 4; i++) {
        running.emplace_back(from_a_thread, i, &sums[i]);
    }
    for (int i = 0; i < 4; i++) {
        running[size_t(i)].join();
        std::printf("thread %d: sum %.0f\n", i, sums[i]);
    }
}

int main() {
    for (int round = 0; round < 2; round++) {
        device_memory();
        stream_memory();
        host_memory();
        graphs();
        threads();
        CHECK(cudaDeviceReset());
        std::printf("after a reset\n");
    }
    size_t left, total;
    CHECK(cudaMemGetInfo(&left, &total));
    std::printf("total: %zu MiB\n", total >> 20);
    return 0;
}
