#include "traffic.h"

#include "../parts/threads.h"
#include "worker.h"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace {

constexpr size_t common_streams = 4;
constexpr int most_trims = 16;
constexpr size_t mib = 1 << 20, most_at_once = size_t(1) << 30;

size_t device_count() {
    auto driver = sized<emm_driver_info>();
    check(emm_get_driver(&driver), "emm_get_driver");
    return driver.device_count;
}

// A context of its own.
Gpu make_gpu(size_t device) {
    using Create = CUresult (*)(CUcontext *, unsigned, CUdevice);
    const auto create = reinterpret_cast<Create>(emm_driver_entry("cuCtxCreate", 3020));
    Gpu gpu;
    check(create(&gpu.cuda, 0, int(device)), "cuCtxCreate");
    check(emm_context_from(gpu.cuda, &gpu.emm), "emm_context_from");
    return gpu;
}

emm_stats stats_of(const Gpu &gpu) {
    auto stats = sized<emm_stats>();
    check(emm_get_stats(gpu.emm, &stats), "emm_get_stats");
    return stats;
}

void expect(uint64_t expected, uint64_t found, const char *of_what) {
    if (expected != found) {
        throw std::runtime_error("in the end: expected " + std::to_string(expected) + " " +
                                 of_what + ", found " + std::to_string(found));
    }
}

// Returns all memory of an idle context. A request makes a plugin look for ended graphs. A trim may
// leave memory that was not known to be complete when it began: for memory that was used on several
// streams, a plugin asks one stream after another, so as many trims may be needed.
void return_everything(const Cuda &cuda, const Gpu &gpu) {
    emm_deviceptr ptr = 0;
    check(emm_memalloc(gpu.emm, mib, nullptr, &ptr), "emm_memalloc");
    check(emm_memfree(gpu.emm, ptr, 0, nullptr), "emm_memfree");
    const auto is_left = [&] {
        const emm_stats stats = stats_of(gpu);
        return stats.reserved_bytes != 0 || stats.host_reserved_bytes != 0;
    };
    for (int trims = 0; trims < most_trims && is_left(); trims++) {
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
        check(emm_trim(gpu.emm, 0, nullptr), "emm_trim");
    }
    const emm_stats stats = stats_of(gpu);
    expect(0, stats.reserved_bytes, "bytes after trims");
    expect(0, stats.host_reserved_bytes, "bytes of pinned memory after trims");
}

} // namespace

// --- a context -----------------------------------------------------------------------------------

Context::Context(const Cuda &cuda, const Gpu &its_gpu, bool its_full)
    : gpu(its_gpu), is_full(its_full) {
    check(cuda.cuCtxSetCurrent(gpu.cuda), "cuCtxSetCurrent");
    pattern = std::make_unique<Pattern>(cuda, gpu.emm);
    for (size_t i = 0; i < common_streams; i++) {
        CUstream stream = nullptr;
        check(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        check(emm_stream_register(gpu.emm, stream), "emm_stream_register");
        common.push_back(stream);
    }
}

void Context::close(const Cuda &cuda) {
    expect(0, pattern->errors(), "words of another pattern");
    const bool is_kernel = pattern->is_kernel();
    pattern.reset();
    for (const CUstream stream : common) {
        check(emm_stream_retire(gpu.emm, stream), "emm_stream_retire");
        check(cuda.cuStreamDestroy(stream), "cuStreamDestroy");
    }
    const emm_stats busy = stats_of(gpu);
    expect(0, busy.live_count, "live blocks");
    expect(0, busy.live_bytes, "live bytes");
    expect(0, busy.host_live_bytes, "live bytes of pinned memory");
    expect(busy.allocations, busy.frees, "frees");
    return_everything(cuda, gpu);
    check(emm_context_retire(gpu.emm), "emm_context_retire");
    std::printf("%llu allocations, at most %.1f MiB live and %.1f MiB reserved; patterns %s\n",
                static_cast<unsigned long long>(busy.allocations),
                double(busy.peak_live_bytes) / mib, double(busy.peak_reserved_bytes) / mib,
                is_kernel ? "verified by kernels" : "written, and uses watched");
}

// --- the traffic ---------------------------------------------------------------------------------

Traffic::Traffic(const Settings &its_settings, size_t its_seed)
    : settings(its_settings), seed(its_seed) {
    const size_t devices = device_count();
    if (settings.full && std::min(devices, settings.contexts) < 2) {
        throw std::runtime_error("full: expected contexts on two devices");
    }
    for (size_t number = 0; number < settings.contexts; number++) {
        const size_t device = number % devices;
        const bool is_full = settings.full && device == 0;
        contexts.push_back(std::make_unique<Context>(cuda, make_gpu(device), is_full));
    }
}

Traffic::~Traffic() {
    for (const auto &context : contexts) {
        cuda.cuCtxDestroy(context->gpu.cuda);
    }
}

void Traffic::run() {
    run_threads(settings.threads, settings.steps ? std::nullopt : std::optional(settings.seconds),
                stop, [this](size_t number) { run_lives(number); });
    if (!failure_.empty()) {
        throw std::runtime_error(failure_);
    }
    free_handed_over();
    empty_first_device();
    for (const auto &context : contexts) {
        use(*context);
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
        context->close(cuda);
    }
}

void Traffic::run_lives(size_t number) {
    const size_t lives = settings.lives;
    const size_t steps = settings.steps ? settings.steps / settings.threads / lives : size_t(-1);
    for (size_t life = 0; life < lives && !stop; life++) {
        std::thread([&] {
            try {
                Worker worker(*this, seed * 1000 + number * lives + life);
                ready_++;
                if (settings.full && life == 0) {
                    number == 0 ? fill_first_device() : await_filling();
                }
                worker.run(steps);
                worker.finish();
            } catch (const std::exception &error) {
                stop = true;
                const std::lock_guard lock(mutex_);
                if (failure_.empty()) {
                    failure_ = "thread " + std::to_string(number) + ": " + error.what();
                }
            }
        }).join();
    }
}

void Traffic::await_filling() const {
    while (!filled_ && !stop) {
        std::this_thread::yield();
    }
}

// Called once each thread has its streams: on a full device none can be made.
void Traffic::fill_first_device() {
    while (ready_ < settings.threads && !stop) {
        std::this_thread::yield();
    }
    const Context &context = *contexts[0];
    use(context);
    for (size_t bytes = most_at_once; bytes >= mib;) {
        size_t free = 0, total = 0;
        check(emm_get_memory_info(context.gpu.emm, &free, &total), "emm_get_memory_info");
        emm_deviceptr ptr = 0;
        if (free < bytes + settings.full * mib ||
            emm_memalloc(context.gpu.emm, bytes, EMM_STREAM_LEGACY, &ptr) < EMM_OK) {
            bytes /= 2;
        } else {
            filling_.push_back(ptr);
        }
    }
    filled_ = true;
}

void Traffic::empty_first_device() {
    for (const emm_deviceptr ptr : filling_) {
        check(emm_memfree(contexts[0]->gpu.emm, ptr, 0, EMM_STREAM_LEGACY), "emm_memfree");
    }
    if (settings.full) {
        std::printf("%zu requests failed on the full device\n", failed.load());
    }
    if (settings.full && failed == 0) {
        throw std::runtime_error("no request failed: the first device was not full");
    }
}

// Memory that was left to other threads and never taken.
void Traffic::free_handed_over() {
    while (const auto handed = take()) {
        const Block &block = handed->block;
        const Context &context = *contexts[block.context];
        use(context);
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
        if (handed->event) {
            check(cuda.cuEventDestroy(handed->event), "cuEventDestroy");
        }
        context.pattern->read_back(block.ptr, block.size, block.pattern, nullptr);
        check(emm_memfree(context.gpu.emm, block.ptr, 0, EMM_STREAM_UNORDERED), "emm_memfree");
    }
}

void Traffic::use(const Context &context) const {
    check(cuda.cuCtxSetCurrent(context.gpu.cuda), "cuCtxSetCurrent");
}

void Traffic::put(const HandOver &handed) {
    const std::lock_guard lock(mutex_);
    handed_over_.push_back(handed);
}

std::optional<HandOver> Traffic::take() {
    const std::lock_guard lock(mutex_);
    if (handed_over_.empty()) {
        return std::nullopt;
    }
    const HandOver handed = handed_over_.front();
    handed_over_.pop_front();
    return handed;
}
