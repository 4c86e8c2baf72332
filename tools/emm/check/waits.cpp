// Calls that wait for the device or for other threads. GPU work may wait for another thread of the
// program, and that thread for memory. So a waiting call must not block other calls. Memory that
// another thread is returning counts as available.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <unistd.h>

namespace emm::tool::check {
namespace {

using namespace std::chrono_literals;

// Keeps a stream's work from ending during this object's lifetime, as a running kernel does.
class HeldStream {
public:
    explicit HeldStream(CUcontext context, CUstream stream)
        : thread_([this, context, stream] {
              enter(context);
              EMM_DRIVER_ENTRY(cuLaunchHostFunc)(stream, &HeldStream::run, this);
          }) {
        while (!runs_) {
            std::this_thread::sleep_for(1ms);
        }
    }
    ~HeldStream() {
        over_ = true;
        thread_.join();
    }
    HeldStream(const HeldStream &) = delete;
    HeldStream &operator=(const HeldStream &) = delete;

private:
    static void run(void *argument) {
        auto &self = *static_cast<HeldStream *>(argument);
        self.runs_ = true;
        while (!self.over_) {
            std::this_thread::sleep_for(1ms);
        }
    }

    std::atomic<bool> runs_{false}, over_{false};
    std::thread thread_;
};

// A thread that makes one call, which may wait.
class Caller {
public:
    template <class Body>
    Caller(CUcontext context, const Body &body)
        : thread_([this, context, body] {
              id_ = gettid();
              enter(context);
              try {
                  body();
              } catch (const Violation &) { // other cases report it
              }
              ended_ = true;
          }) {}
    ~Caller() { thread_.join(); }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;
    bool ended() const { return ended_; }

    // Asks the kernel: a thread that waits for a processor is not asleep.
    bool sleeps() const {
        std::string text;
        if (FILE *const file =
                fopen(fmt::format("/proc/self/task/{}/stat", id_.load()).c_str(), "re")) {
            char line[1024];
            text = fgets(line, sizeof line, file) ? line : "";
            fclose(file);
        }
        const size_t name_ends = text.rfind(") ");
        return name_ends != text.npos && text[name_ends + 2] == 'S';
    }

private:
    std::atomic<bool> ended_{false};
    std::atomic<pid_t> id_{0};
    std::thread thread_;
};

enum class State { ended, in_driver, stuck };

// The state of a call while `others` threads wait in the driver.
State outcome_of(const Caller &caller, uint64_t others) {
    constexpr int enough = 1000; // consecutive looks at a thread that sleeps elsewhere
    for (int asleep = 0; asleep < enough; std::this_thread::sleep_for(2ms)) {
        if (caller.ended()) {
            return State::ended;
        }
        if (counters().waiting > others) {
            return State::in_driver;
        }
        asleep = caller.sleeps() ? asleep + 1 : 0;
    }
    return State::stuck;
}

// Half of a small device is freed on a busy stream and requested again.
// The state of another thread's call meanwhile; nothing if no call waits.
State ask_meanwhile(const BareManager &manager, CUcontext context) {
    const OwnedStream busy, hungry, idle;
    const auto ask_little = [&manager, stream = idle.get()] {
        emm_deviceptr ptr = 0;
        if (EMM_SLOT(manager, memalloc, size_t(1000), stream, &ptr) >= EMM_OK) {
            EMM_SLOT(manager, memfree, ptr, size_t(1000), stream);
        }
    };
    ask_little();
    const emm_deviceptr half = manager.alloc(160 * mib, busy.get());
    std::optional<Caller> waiter, other; // they end when the stream does
    const HeldStream held(context, busy.get());
    waiter.emplace(context, [&, half] {
        emm_deviceptr next = 0;
        EMM_SLOT(manager, memfree, half, 160 * mib, busy.get());
        run_deferred(EMM_DEFERRED_RUN);
        EMM_SLOT(manager, memalloc, 160 * mib, hungry.get(), &next);
    });
    if (outcome_of(*waiter, 0) != State::in_driver) {
        return State::ended;
    }
    other.emplace(context, ask_little);
    return outcome_of(*other, 1);
}

void nobody_else(const CheckedPlugin &plugin) {
    const CUcontext context = enter_device();
    const Bare bare(plugin);
    const BareManager manager(bare);
    expect(ask_meanwhile(manager, context) != State::stuck,
           "while a call waits for the device, another thread's call for 1000 bytes waits for that "
           "call: a lock is held over the wait");
}

// A request for memory, while another thread's call that returns memory is held in the driver.
struct HeldCall {
    std::atomic<bool> is_held{false};
    std::atomic<const Caller *> asking{nullptr};
};
HeldCall held_call;
thread_local bool gives_back = false; // another thread's calls are not held

// The first call lasts until the request has ended or waits.
void hold_first() {
    constexpr int enough = 30; // consecutive looks at a thread that sleeps
    constexpr int most = 5000; // looks at a thread that is busy waiting
    if (!gives_back || held_call.is_held.exchange(true)) {
        return;
    }
    for (int asleep = 0, looks = 0; asleep < enough && looks < most; looks++) {
        std::this_thread::sleep_for(1ms);
        const Caller *const asking = held_call.asking;
        if (asking && asking->ended()) {
            return;
        }
        asleep = asking && asking->sleeps() ? asleep + 1 : 0;
    }
}

void beside_trim(const CheckedPlugin &plugin) {
    constexpr size_t size = 160 * mib;
    const CUcontext context = enter_device();
    const Bare bare(plugin);
    need(bare.slots().trim, "it has no trim: it caches nothing");
    const BareManager manager(bare);
    manager.free(manager.alloc(size, EMM_STREAM_LEGACY), size, EMM_STREAM_LEGACY);
    EMM_REQUIRE_CUDA_ENTRY(cuCtxSynchronize);
    run_deferred(EMM_DEFERRED_RUN);
    emm_status status = EMM_OK;
    Said why;
    {
        before_giving_back = hold_first;
        const Caller trimming(context, [&] {
            size_t released = 0;
            gives_back = true;
            EMM_SLOT(manager, trim, size_t(0), &released);
        });
        while (!held_call.is_held && !trimming.ended()) {
            std::this_thread::yield();
        }
        const Caller asking(context, [&] {
            emm_deviceptr ptr = 0;
            status = EMM_SLOT(manager, memalloc, size, EMM_STREAM_LEGACY, &ptr);
            why = last_said();
        });
        held_call.asking = &asking;
        while (!asking.ended() || !trimming.ended()) {
            std::this_thread::sleep_for(1ms);
        }
    }
    before_giving_back = nullptr;
    if (!held_call.is_held) {
        throw Skipped("its trim calls nothing that gives memory back");
    }
    expect(status >= EMM_OK,
           "while another thread's trim gives {} bytes back, a request for as many fails: {} {}",
           size, status, why.text);
}

} // namespace

std::vector<Case> wait_cases() {
    return {
        {"threads/waits-alone", "EMM-P-46",
         "a call that waits for the device keeps no other call waiting", nobody_else, on_simulator,
         "memory=256MiB"},
        {"threads/beside-trim", "EMM-P-56",
         "a request waits for what another thread is giving back", beside_trim, on_simulator,
         "memory=256MiB"},
    };
}

} // namespace emm::tool::check
