#include "fault.h"

#include <simcuda.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <pthread.h>

namespace faults {
namespace {

struct Simulator {
    decltype(&simcuda_fail) fail = nullptr;
    decltype(&simcuda_spare) spare = nullptr;
    decltype(&simcuda_fault_count) fault_count = nullptr;
    decltype(&simcuda_last_fault) last_fault = nullptr;
    decltype(&simcuda_is_inside) is_inside = nullptr;
    decltype(&simcuda_get_counters) get_counters = nullptr;
};
Simulator simulator;

template <class Function> void find(void *library, const char *name, Function &ret_function) {
    ret_function = reinterpret_cast<Function>(dlsym(library, name));
    if (!ret_function) {
        std::fprintf(stderr, "the driver has no %s\n", name);
        std::exit(2);
    }
}

// What is counted here and not by the driver.
struct Count {
    std::atomic<bool> armed{false};
    std::atomic<unsigned> seen{0}, failed{0};
    unsigned first = 0, second = 0;
    bool onwards = false;

    bool fails() {
        if (!armed.load(std::memory_order_acquire)) {
            return false;
        }
        const unsigned number = seen.fetch_add(1) + 1;
        const bool due = number == first || number == second || (onwards && number > first);
        failed.fetch_add(due);
        return due;
    }
    void arm(const Plan &plan) {
        first = plan.first;
        second = plan.second;
        onwards = plan.onwards;
        seen = failed = 0;
        armed.store(true, std::memory_order_release);
    }
};
Count memory, threads;

thread_local int depth_outside = 0; // a thread of emm's has never been told

bool is_emms() {
    return depth_outside == 0 && !(simulator.is_inside && simulator.is_inside());
}

constexpr const char *takes_back[] = {
    "cuMemFree",       "cuMemFreeAsync",      "cuMemFreeHost",    "cuMemHostUnregister",
    "cuMemUnmap",      "cuMemRelease",        "cuMemAddressFree", "cuMemPoolDestroy",
    "cuMemPoolTrimTo", "cuIpcCloseMemHandle",
};

uint64_t refusals() {
    uint64_t sum = 0;
    for (const char *name : takes_back) {
        sum += simulator.fault_count(name);
    }
    return sum;
}

uint64_t driver_faults() {
    simcuda_counters counters = {};
    counters.struct_size = sizeof counters;
    simulator.get_counters(&counters);
    return counters.faults;
}

uint64_t faults_before = 0, refusals_before = 0;

void arm_driver(const Plan &plan) {
    const std::string code = plan.code ? ":" + std::to_string(plan.code) : "";
    const std::string first = "any@" + std::to_string(plan.first) + (plan.onwards ? "+" : code);
    simulator.fail(first.c_str());
    if (plan.second) {
        simulator.fail(("any@" + std::to_string(plan.second)).c_str());
    }
}

} // namespace

std::string text_of(const Plan &plan) {
    const char *const kinds[] = {"driver call", "allocation", "thread"};
    std::string text = std::string(kinds[static_cast<int>(plan.kind)]) + " ";
    text += std::to_string(plan.first);
    text += plan.onwards  ? " and all after it"
            : plan.second ? " and " + std::to_string(plan.second)
                          : "";
    return text + (plan.code ? " with error " + std::to_string(plan.code) : "");
}

void open_driver() {
    const char *const path = std::getenv("EMM_DRIVER");
    void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) {
        std::fprintf(stderr, "EMM_DRIVER: expected the path of the simulated driver\n");
        std::exit(2);
    }
    find(library, "simcuda_fail", simulator.fail);
    find(library, "simcuda_spare", simulator.spare);
    find(library, "simcuda_fault_count", simulator.fault_count);
    find(library, "simcuda_last_fault", simulator.last_fault);
    find(library, "simcuda_get_counters", simulator.get_counters);
    find(library, "simcuda_is_inside", simulator.is_inside);
    simulator.spare(1);
    depth_outside = 1;
}

void arm(const Plan &plan) {
    faults_before = driver_faults();
    refusals_before = refusals();
    switch (plan.kind) {
    case Kind::driver:
        return arm_driver(plan);
    case Kind::memory:
        return memory.arm(plan);
    case Kind::threads:
        return threads.arm(plan);
    }
}

Outcome disarm() {
    memory.armed = threads.armed = false;
    simulator.fail(nullptr);
    Outcome outcome;
    outcome.failed = static_cast<unsigned>(driver_faults() - faults_before);
    outcome.last = outcome.failed ? simulator.last_fault() : "";
    outcome.failed += memory.failed.exchange(0) + threads.failed.exchange(0);
    outcome.keeps_memory = refusals() != refusals_before;
    return outcome;
}

Inside::Inside() {
    simulator.spare(0);
    --depth_outside;
}

Inside::~Inside() {
    ++depth_outside;
    simulator.spare(1);
}

Outside::Outside() {
    simulator.spare(1);
    ++depth_outside;
}

Outside::~Outside() {
    --depth_outside;
    simulator.spare(depth_outside);
}

bool memory_fails() {
    return is_emms() && memory.fails();
}

bool thread_fails() {
    return is_emms() && threads.fails();
}

} // namespace faults

// --- in front of the C++ library's, for the whole process ----------------------------------------

namespace {

void *take(std::size_t size, std::size_t alignment) {
    if (faults::memory_fails()) {
        return nullptr;
    }
    size = size ? size : 1;
    return alignment <= alignof(std::max_align_t)
               ? std::malloc(size)
               : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void *take_or_throw(std::size_t size, std::size_t alignment) {
    void *const taken = take(size, alignment);
    if (!taken) {
        throw std::bad_alloc();
    }
    return taken;
}

} // namespace

void *operator new(std::size_t size) {
    return take_or_throw(size, 1);
}
void *operator new[](std::size_t size) {
    return take_or_throw(size, 1);
}
void *operator new(std::size_t size, std::align_val_t alignment) {
    return take_or_throw(size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment) {
    return take_or_throw(size, static_cast<std::size_t>(alignment));
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return take(size, 1);
}
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return take(size, 1);
}
void *operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t &) noexcept {
    return take(size, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment,
                     const std::nothrow_t &) noexcept {
    return take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void *ptr) noexcept {
    std::free(ptr);
}
void operator delete[](void *ptr) noexcept {
    std::free(ptr);
}
void operator delete(void *ptr, std::size_t) noexcept {
    std::free(ptr);
}
void operator delete[](void *ptr, std::size_t) noexcept {
    std::free(ptr);
}
void operator delete(void *ptr, std::align_val_t) noexcept {
    std::free(ptr);
}
void operator delete[](void *ptr, std::align_val_t) noexcept {
    std::free(ptr);
}
void operator delete(void *ptr, std::size_t, std::align_val_t) noexcept {
    std::free(ptr);
}
void operator delete[](void *ptr, std::size_t, std::align_val_t) noexcept {
    std::free(ptr);
}
void operator delete(void *ptr, const std::nothrow_t &) noexcept {
    std::free(ptr);
}
void operator delete[](void *ptr, const std::nothrow_t &) noexcept {
    std::free(ptr);
}

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                                     const pthread_attr_t *how,
                                                                     void *(*begin)(void *),
                                                                     void *argument) noexcept {
    using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    return faults::thread_fails() ? EAGAIN : real(thread, how, begin, argument);
}
