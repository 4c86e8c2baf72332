#include "gpu.h"

#include <atomic>
#include <chrono>
#include <thread>

Gpu::Gpu() {
    using Create = CUresult (*)(CUcontext *, unsigned, CUdevice);
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    const auto create = reinterpret_cast<Create>(emm_driver_entry("cuCtxCreate", 3020));
    REQUIRE(create(&cuda_, 0, 0) == CUDA_SUCCESS);
    emm_ = context_from(cuda_);
}

Gpu::~Gpu() {
    if (emm_) {
        emm_context_retire(emm_);
    }
    if (cuda_) {
        CU(cuCtxDestroy)(cuda_);
    }
}

void Gpu::kill() {
    REQUIRE(CU(cuCtxDestroy)(cuda_) == CUDA_SUCCESS);
    cuda_ = nullptr;
}

void Gpu::abandon() {
    kill();
    emm_ = nullptr;
}

CUstream Gpu::make_stream(unsigned flags) const {
    CUstream stream = nullptr;
    REQUIRE(CU(cuStreamCreate)(&stream, flags) == CUDA_SUCCESS);
    return stream;
}

emm_deviceptr Gpu::allocate(size_t size, emm_stream stream) const {
    return allocate_in(emm_, size, stream);
}

emm_status Gpu::free(emm_deviceptr ptr, size_t size, emm_stream stream) const {
    return emm_memfree(emm_, ptr, size, stream);
}

emm_stats Gpu::stats() const {
    return stats_of(emm_);
}

static simcuda_counters simulator_counters() {
    auto counters = sized<simcuda_counters>();
    const auto get = reinterpret_cast<decltype(&simcuda_get_counters)>(
        emm_driver_entry("simcuda_get_counters", 12000));
    if (get) {
        get(&counters);
    }
    return counters;
}

uint64_t races() {
    return simulator_counters().races;
}

uint64_t host_bytes() {
    return simulator_counters().host_bytes;
}

uint64_t objects() {
    return simulator_counters().objects;
}

uint64_t device_bytes() {
    size_t free = 0, total = 0;
    REQUIRE(CU(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
    return total - free + (plugin_name() == "managed" ? host_bytes() : 0);
}

size_t most_bytes() {
    size_t free = 0, total = 0;
    REQUIRE(CU(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
    return plugin_name() == "managed" ? 2 * total : total;
}

uint64_t calls_of(const char *entry) {
    const auto count = reinterpret_cast<decltype(&simcuda_call_count)>(
        emm_driver_entry("simcuda_call_count", 12000));
    REQUIRE(count);
    return count(entry);
}

void fail_next(const char *fault) {
    const auto fail =
        reinterpret_cast<decltype(&simcuda_fail)>(emm_driver_entry("simcuda_fail", 12000));
    REQUIRE(fail);
    REQUIRE(fail(fault) == CUDA_SUCCESS);
}

std::string plugin_name() {
    return plugin_info().name;
}

void fill(emm_deviceptr ptr, size_t size, unsigned value, CUstream stream) {
    REQUIRE(CU(cuMemsetD32Async)(ptr, value, size / 4, stream) == CUDA_SUCCESS);
}

unsigned last_word(emm_deviceptr ptr, size_t size) {
    unsigned word = 0;
    REQUIRE(CU(cuMemcpyDtoH)(&word, ptr + size / 4 * 4 - 4, 4) == CUDA_SUCCESS);
    return word;
}

void synchronize(CUstream stream) {
    REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
}

void request_what_another_thread_gives_back() {
    const Gpu gpu;
    const CUstream stream = gpu.make_stream(), busy = gpu.make_stream();
    size_t free = 0, total = 0;
    REQUIRE(CU(cuMemGetInfo)(&free, &total) == CUDA_SUCCESS);
    const size_t most = total / 8 * 5;
    const emm_deviceptr large = gpu.allocate(most), small = gpu.allocate(1 << 20);
    REQUIRE(emm_capture_begin(gpu.emm(), stream) == EMM_OK);
    CHECK(gpu.free(large, most) == EMM_OK);
    REQUIRE(emm_capture_end(gpu.emm(), stream) == EMM_OK);
    std::atomic<bool> waits{false};
    const auto keep_waiting = [](void *flag) {
        *static_cast<std::atomic<bool> *>(flag) = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
    emm_status freed = EMM_E_DRIVER;
    std::thread other([&] {
        CU(cuCtxSetCurrent)(gpu.cuda());
        CU(cuLaunchHostFunc)(busy, keep_waiting, &waits);
        freed = gpu.free(small, 1 << 20); // gives back `large` too, perhaps behind `busy`
        waits = true;
    });
    while (!waits) {
        std::this_thread::yield();
    }
    emm_deviceptr again = 0;
    const emm_status status = emm_memalloc(gpu.emm(), most, stream, &again);
    INFO(emm_last_error()->text);
    other.join();
    CHECK(freed == EMM_OK);
    CHECK(status == EMM_OK);
}
