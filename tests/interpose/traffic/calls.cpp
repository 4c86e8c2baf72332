#include "calls.h"

#include "../driver.h"

#include <emm/cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t most_arguments = 6;
constexpr int not_returned = -1;

// Atomic: another thread reads it while it is written, and may then read a mixture of two calls.
struct Call {
    std::atomic<const char *> name{nullptr};
    std::atomic<uint64_t> arguments[most_arguments] = {};
    std::atomic<size_t> argument_count{0};
    std::atomic<uint64_t> begun{0}, ended{0}; // in nanoseconds since watch_calls
    std::atomic<int> result{not_returned};
};

// The calls of one thread: the latest takes the place of the oldest.
struct ThreadCalls {
    explicit ThreadCalls(size_t kept) : calls(kept) {}
    std::vector<Call> calls;
    std::atomic<uint64_t> made{0};
    size_t thread = 0; // in the order of their first calls
};

struct Watch {
    Driver driver; // the entries themselves
    size_t kept = 0;
    Clock::time_point start;
    std::mutex mutex;
    std::vector<std::unique_ptr<ThreadCalls>> threads; // also of threads that have ended
    std::atomic<bool> lost{false};
};
Watch &watch() {
    static Watch *const the_watch = new Watch;
    return *the_watch;
}

uint64_t now() {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - watch().start).count());
}

ThreadCalls &calls_of_thread() {
    thread_local ThreadCalls *its = nullptr;
    if (!its) {
        const std::lock_guard lock(watch().mutex);
        watch().threads.push_back(std::make_unique<ThreadCalls>(watch().kept));
        its = watch().threads.back().get();
        its->thread = watch().threads.size() - 1;
    }
    return *its;
}

// --- the record of a call ----------------------------------------------------------------------

template <class Value> uint64_t bits_of(Value value) {
    if constexpr (std::is_pointer_v<Value>) {
        return reinterpret_cast<uintptr_t>(value);
    } else if constexpr (std::is_class_v<Value>) {
        return 0; // a handle of cuIpcGetMemHandle
    } else {
        return uint64_t(value);
    }
}

// Where the driver has put an address, a size or a handle.
template <class Value>
constexpr bool is_output = std::is_pointer_v<Value> || std::is_same_v<Value, unsigned long> ||
                           std::is_same_v<Value, unsigned long long>;

template <class Value> uint64_t told_by(Value argument) {
    using Target = std::remove_pointer_t<Value>;
    if constexpr (std::is_pointer_v<Value> && is_output<Target> && !std::is_const_v<Target>) {
        return argument ? bits_of(*argument) : 0;
    } else {
        return bits_of(argument);
    }
}

template <class... Arguments> void note(Call &call, Arguments... values) {
    size_t number = 0;
    ((number < most_arguments ? call.arguments[number++].store(values, std::memory_order_relaxed)
                              : void()),
     ...);
    call.argument_count = number;
}

// --- the end -----------------------------------------------------------------------------------

struct Line {
    uint64_t begun = 0;
    size_t thread = 0;
    const Call *call = nullptr;
};

void print(const Line &line) {
    const Call &call = *line.call;
    std::fprintf(stderr, "  %10.3f us, thread %zu: %s(", double(line.begun) / 1000, line.thread,
                 call.name.load());
    for (size_t i = 0; i < call.argument_count; i++) {
        std::fprintf(stderr, "%s0x%" PRIx64, i ? ", " : "", call.arguments[i].load());
    }
    const int result = call.result;
    if (result == not_returned) {
        std::fprintf(stderr, "): has not returned\n");
    } else {
        std::fprintf(stderr, "): %d after %.3f us\n", result,
                     double(call.ended - line.begun) / 1000);
    }
}

std::vector<Line> latest_calls() {
    std::vector<Line> lines;
    const std::lock_guard lock(watch().mutex);
    for (const auto &thread : watch().threads) {
        for (const Call &call : thread->calls) {
            if (call.name) {
                lines.push_back({call.begun, thread->thread, &call});
            }
        }
    }
    std::sort(lines.begin(), lines.end(),
              [](const Line &a, const Line &b) { return a.begun < b.begun; });
    return lines;
}

// Ends without the destructors of threads, where the driver would wait for work that never ends.
[[noreturn]] void end_lost(const char *name, CUresult result) {
    if (watch().lost.exchange(true)) {
        for (;;) { // the first thread ends the process
            std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    std::fprintf(stderr,
                 "%s: CUDA error %d: the context is lost; the latest calls of all threads, with "
                 "arguments as the calls left them, in the order of their beginnings:\n",
                 name, int(result));
    for (const Line &line : latest_calls()) {
        print(line);
    }
    std::fprintf(stderr, "%s: CUDA error %d: the context is lost; thread %zu was told first\n",
                 name, int(result), calls_of_thread().thread);
    std::fflush(nullptr);
    std::_Exit(1);
}

// --- the entries -------------------------------------------------------------------------------

template <auto member> struct Watched;
template <class... Arguments, CUresult (*Driver::*member)(Arguments...)> struct Watched<member> {
    static inline const char *name = nullptr;

    static CUresult call(Arguments... arguments) {
        ThreadCalls &its = calls_of_thread();
        Call &noted = its.calls[its.made++ % its.calls.size()];
        noted.result = not_returned;
        noted.name = name;
        noted.begun = now();
        note(noted, bits_of(arguments)...);
        const CUresult result = (watch().driver.*member)(arguments...);
        noted.ended = now();
        noted.result = result;
        if (emm::cuda::is_sticky(result)) {
            end_lost(name, result);
        }
        if (result == CUDA_SUCCESS) {
            note(noted, told_by(arguments)...);
        }
        return result;
    }

    static void begin(const char *its_name) {
        name = its_name;
        cu.*member = &call;
    }
};

} // namespace

void watch_calls(size_t kept) {
    watch().driver = cu;
    watch().kept = std::max(kept, size_t(1));
    watch().start = Clock::now();
#define WATCH(name) Watched<&Driver::name>::begin(#name);
#define WATCH_VERSION(symbol, name, version, ...) Watched<&Driver::symbol>::begin(name);
    DRIVER_ENTRIES(WATCH)
    DRIVER_VERSIONS(WATCH_VERSION)
#undef WATCH
#undef WATCH_VERSION
}
