// emm.hpp with Thrust, CUB and cuda::mr on a real GPU: prints one line a check, exits with 1 if one
// failed. Which plugin serves is said by EMM_PLUGIN.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // CCCL before 3.1

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <emm/emm.hpp>

#include <cub/device/device_reduce.cuh>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr size_t count = 1 << 20;

using Allocator = emm::DeviceAllocator<int, thrust::device_ptr<int>>;
using Vector = thrust::device_vector<int, Allocator>;
using Resource = emm::DeviceResource<cuda::mr::device_accessible>;

int failed = 0;

void expect(bool good, const char *sentence) {
    std::printf("%s: %s\n", good ? "passed" : "FAILED", sentence);
    failed += !good;
}

void check(cudaError_t error) {
    if (error != cudaSuccess) {
        throw std::runtime_error(cudaGetErrorString(error));
    }
}

emm_stats stats(emm_context *context) {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    emm::check(emm_get_stats(context, &stats));
    return stats;
}

// How many times emm has been asked for memory.
uint64_t requests = 0;

void count_requests(const emm_event *event, void *) {
    requests += event->new_ptr != 0;
}

std::vector<int> random_numbers() {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int> distribution(-1000, 1000);
    std::vector<int> numbers(count);
    std::generate(numbers.begin(), numbers.end(), [&] { return distribution(engine); });
    return numbers;
}

std::vector<int> to_host(const int *device) {
    std::vector<int> numbers(count);
    check(cudaMemcpy(numbers.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost));
    return numbers;
}

void sort_and_reduce(emm_context *context, const std::vector<int> &numbers) {
    const Allocator allocator(context);
    const uint64_t before = requests;
    Vector keys(numbers.begin(), numbers.end(), allocator);
    expect(requests > before, "a Thrust vector allocates through emm");

    const uint64_t vectors_only = requests;
    emm::DeviceAllocator<char> temporaries(context);
    thrust::sort(thrust::cuda::par(temporaries), keys.begin(), keys.end(), thrust::greater<int>());
    expect(requests > vectors_only, "Thrust's temporaries come from emm");

    std::vector<int> expected = numbers;
    std::sort(expected.begin(), expected.end(), std::greater<int>());
    expect(to_host(thrust::raw_pointer_cast(keys.data())) == expected, "thrust::sort sorts");
    const int sum = thrust::reduce(thrust::cuda::par(temporaries), keys.begin(), keys.end());
    expect(sum == std::accumulate(numbers.begin(), numbers.end(), 0), "thrust::reduce adds up");

    Vector copy = keys;
    copy.push_back(4711);
    expect(copy.size() == count + 1 && copy.back() == 4711 && keys.size() == count,
           "a copied vector grows in memory of its own");
}

void reduce_with_cub(emm_context *context, const std::vector<int> &numbers, cudaStream_t stream) {
    const emm::MemoryPointer input(context, count * sizeof(int), stream);
    const emm::MemoryPointer sum(context, sizeof(int), stream);
    const emm::PinnedMemory result(context, sizeof(int));
    check(cudaMemcpyAsync(input.data(), numbers.data(), input.size(), cudaMemcpyHostToDevice,
                          stream));
    size_t size = 0;
    check(cub::DeviceReduce::Sum(nullptr, size, input.data<int>(), sum.data<int>(),
                                 static_cast<int>(count), stream));
    const emm::MemoryPointer temporary(context, size, stream);
    check(cub::DeviceReduce::Sum(temporary.data(), size, input.data<int>(), sum.data<int>(),
                                 static_cast<int>(count), stream));
    check(cudaMemcpyAsync(result.span().data(), sum.data(), sizeof(int), cudaMemcpyDeviceToHost,
                          stream));
    check(cudaStreamSynchronize(stream));
    expect(result.span<int>()[0] == std::accumulate(numbers.begin(), numbers.end(), 0),
           "cub::DeviceReduce adds up with temporary storage from a MemoryPointer");
}

void serve_cuda_mr(emm_context *context, cudaStream_t stream) {
    Resource resource(context);
    const uint64_t before = stats(context).live_bytes;
#if CCCL_VERSION < 3001000
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> reference(resource);
    void *const block = reference.allocate_async(4096, 256, cuda::stream_ref(stream));
#else
    cuda::mr::resource_ref<cuda::mr::device_accessible> reference(resource);
    void *const block = reference.allocate(cuda::stream_ref(stream), 4096, 256);
#endif
    check(cudaMemsetAsync(block, 1, 4096, stream));
    expect(stats(context).live_bytes == before + 4096, "cuda::mr allocates through emm");
#if CCCL_VERSION < 3001000
    reference.deallocate_async(block, 4096, 256, cuda::stream_ref(stream));
#else
    reference.deallocate(cuda::stream_ref(stream), block, 4096, 256);
#endif
    check(cudaStreamSynchronize(stream));
    expect(stats(context).live_bytes == before, "and gives back what it took");
}

void copy_through_pinned(emm_context *context, const std::vector<int> &numbers) {
    emm::PinnedResource pinned(context);
    std::pmr::vector<int> staging(numbers.begin(), numbers.end(), &pinned);
    cudaPointerAttributes attributes = {};
    check(cudaPointerGetAttributes(&attributes, staging.data()));
    expect(attributes.type == cudaMemoryTypeHost, "a pmr vector lies in pinned memory");
    const emm::MemoryPointer device(context, count * sizeof(int));
    check(cudaMemcpy(device.data(), staging.data(), device.size(), cudaMemcpyHostToDevice));
    expect(to_host(device.data<int>()) == numbers, "and is copied to the device as it is");
}

void run() {
    check(cudaFree(nullptr)); // brings the primary context to life, and makes it current
    emm_context *const context = emm::current_context();
    emm::check(emm_set_event_hook(&count_requests, nullptr, nullptr));
    const std::vector<int> numbers = random_numbers();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    sort_and_reduce(context, numbers);
    reduce_with_cub(context, numbers, stream);
    serve_cuda_mr(context, stream);
    copy_through_pinned(context, numbers);
    expect(stats(context).live_bytes == 0, "nothing is left at the end");
    check(cudaStreamSynchronize(stream));
    check(cudaStreamDestroy(stream));
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception &error) {
        expect(false, error.what());
    }
    std::printf("CCCL %d, %d failed\n", CCCL_VERSION, failed);
    return failed != 0;
}
