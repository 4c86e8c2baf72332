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

// Counts the calls that the driver does not count.
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
    ++depth_outside;
    simulator.spare(1);
}

Outside::~Outside() {
    --depth_outside;
    simulator.spare(depth_outside);
}

// A check on the way may be the first use of a library's thread-local storage, for which the C
// library takes memory.
bool memory_fails() {
    thread_local bool asks = false;
    if (!memory.armed || asks) {
        return false;
    }
    asks = true;
    const bool fails = is_emms() && memory.fails();
    asks = false;
    errno = fails ? ENOMEM : errno;
    return fails;
}

bool thread_fails() {
    return is_emms() && threads.fails();
}

} // namespace faults

// --- in front of the C library's, for the whole process ------------------------------------------

#define EMM_TEST_IN_FRONT __attribute__((visibility("default")))

#ifdef EMM_TEST_FAILS_MALLOC
// Operator new calls these, also in a library with a C++ runtime of its own inside.
extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

EMM_TEST_IN_FRONT void *malloc(size_t size) {
    return faults::memory_fails() ? nullptr : __libc_malloc(size);
}
EMM_TEST_IN_FRONT void *calloc(size_t count, size_t size) {
    return faults::memory_fails() ? nullptr : __libc_calloc(count, size);
}
EMM_TEST_IN_FRONT void *realloc(void *old, size_t size) {
    return faults::memory_fails() ? nullptr : __libc_realloc(old, size);
}
EMM_TEST_IN_FRONT void *aligned_alloc(size_t alignment, size_t size) {
    return faults::memory_fails() ? nullptr : __libc_memalign(alignment, size);
}
}
#endif

extern "C" EMM_TEST_IN_FRONT int pthread_create(pthread_t *thread, const pthread_attr_t *how,
                                                void *(*begin)(void *), void *argument) noexcept {
    using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    return faults::thread_fails() ? EAGAIN : real(thread, how, begin, argument);
}
