// traffic [SECONDS]: random traffic of 8 threads in 2 contexts through the plugin in EMM_PLUGIN, on
// the driver in EMM_DRIVER, with a pattern in every block. Exit status 1: something was wrong.
#include "worker.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace {

constexpr unsigned thread_count = 8;

// Two devices if there are, else two contexts of the first.
std::vector<Gpu> make_gpus() {
    emm_driver_info driver = {};
    driver.struct_size = sizeof driver;
    check(emm_get_driver(&driver), "loading the driver");
    std::vector<Gpu> gpus(2);
    emm_context_info info = {};
    info.struct_size = sizeof info;
    check(emm_context_for_device(0, &gpus[0].emm), "device 0");
    check(emm_context_get_info(gpus[0].emm, &info), "device 0");
    gpus[0].cuda = info.cuda_context;
    if (driver.device_count > 1) {
        check(emm_context_for_device(1, &gpus[1].emm), "device 1");
        check(emm_context_get_info(gpus[1].emm, &info), "device 1");
        gpus[1].cuda = info.cuda_context;
        return gpus;
    }
    using Create = CUresult (*)(CUcontext *, unsigned, CUdevice);
    const auto create = reinterpret_cast<Create>(emm_driver_entry("cuCtxCreate", 3020));
    check(create(&gpus[1].cuda, 0, 0), "cuCtxCreate");
    check(emm_context_from(gpus[1].cuda, &gpus[1].emm), "a second context");
    return gpus;
}

// The first failure stops the traffic; the others are its consequences.
class Failures {
public:
    void add(unsigned number, const std::string &text) {
        std::lock_guard lock(mutex_);
        if (count_++ == 0) {
            std::fprintf(stderr, "thread %u: %s\n", number, text.c_str());
        }
    }
    bool any() {
        std::lock_guard lock(mutex_);
        return count_ != 0;
    }

private:
    std::mutex mutex_;
    int count_ = 0;
};

void run_threads(Traffic &traffic, Failures &failures, std::chrono::duration<double> duration) {
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < thread_count; number++) {
        threads.emplace_back([&, number] {
            try {
                Worker(traffic, number).run();
            } catch (const std::exception &error) {
                traffic.stop = true;
                failures.add(number, error.what());
            }
        });
    }
    const auto end = std::chrono::steady_clock::now() + duration;
    while (!traffic.stop && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    traffic.stop = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// What was sent and never taken.
void empty_mailbox(Traffic &traffic) {
    while (const auto parcel = traffic.mailbox.take()) {
        check(traffic.cuda.cuCtxSetCurrent(traffic.gpus[parcel->block.gpu].cuda), "current");
        check(traffic.cuda.cuCtxSynchronize(), "cuCtxSynchronize");
        check(traffic.cuda.cuEventDestroy(parcel->event), "cuEventDestroy");
        parcel->block.verify(traffic.cuda, nullptr);
        check(emm_memfree(traffic.gpus[parcel->block.gpu].emm, parcel->block.ptr, 0,
                          EMM_STREAM_UNORDERED),
              "emm_memfree");
    }
}

void check_nothing_lives(const Traffic &traffic) {
    for (const Gpu &gpu : traffic.gpus) {
        emm_stats stats = {};
        stats.struct_size = sizeof stats;
        check(emm_get_stats(gpu.emm, &stats), "emm_get_stats");
        if (stats.live_count != 0 || stats.allocations != stats.frees) {
            throw std::runtime_error("in the end: expected every block freed, found " +
                                     std::to_string(stats.live_count) + " live");
        }
        check(emm_context_retire(gpu.emm), "emm_context_retire");
    }
}

int run(double seconds) {
    Traffic traffic;
    traffic.gpus = make_gpus();
    Failures failures;
    run_threads(traffic, failures, std::chrono::duration<double>(seconds));
    if (failures.any()) {
        return 1;
    }
    empty_mailbox(traffic);
    check_nothing_lives(traffic);
    std::printf("%llu steps\n", static_cast<unsigned long long>(traffic.steps.load()));
    return 0;
}

} // namespace

int main(int argc, char *argv[]) {
    try {
        return run(argc > 1 ? std::atof(argv[1]) : 3);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
