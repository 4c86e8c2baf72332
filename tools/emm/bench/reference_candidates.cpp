// The allocators that plugins are compared with: those of the processor's memory, the driver's own
// calls, and a loop that allocates nothing.
#include "bench/candidate.h"
#include "bench/memory.h"
#include "bench/works.h"
#include "driver.h"

#include <cstdlib>
#include <dlfcn.h>
#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

class LibraryCandidate : public Candidate {
public:
    // Through volatile pointers: the compiler knows malloc, and would leave a pair out.
    LibraryCandidate(void *(*allocate)(size_t), void (*release)(void *))
        : allocate_(allocate), release_(release) {}

    Team::Maker maker(const Measurement &measurement) override {
        const LibraryMemory memory = {allocate_, release_};
        const auto ring = std::make_shared<RingOf<LibraryMemory>>(measurement.threads);
        return [=](uint32_t thread, const std::atomic<bool> &stopping) {
            return make_work(measurement, memory, thread, 0, ring, stopping);
        };
    }

private:
    void *(*volatile allocate_)(size_t);
    void (*volatile release_)(void *);
};

class CounterCandidate : public Candidate {
public:
    Team::Maker maker(const Measurement &) override {
        return [](uint32_t, const std::atomic<bool> &) { return std::make_unique<CounterWork>(); };
    }
};

// The driver's own calls, on the primary context of device 0.
class DriverCandidate : public Candidate {
public:
    DriverCandidate() {
        driver_ = describe_driver();
        if (driver_.at("simulated").get<bool>()) {
            throw Absent{"the driver is simulated, so what its calls cost says nothing"};
        }
        EMM_REQUIRE_CUDA(cuDeviceGet, &device_, 0);
        EMM_REQUIRE_CUDA(cuDevicePrimaryCtxRetain, &context_, device_);
        enter();
    }
    Json driver() const override { return driver_; }

protected:
    void enter() const { EMM_REQUIRE_CUDA(cuCtxSetCurrent, context_); }
    template <class Memory>
    Team::Maker pair_maker(const Measurement &measurement, const Memory &memory) {
        return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
            enter();
            return std::make_unique<PairWork<Memory>>(memory, measurement.size);
        };
    }
    CUdevice device() const { return device_; }

private:
    Json driver_;
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
};

template <class Memory, auto allocate, auto release> class DriverPairs : public DriverCandidate {
public:
    Team::Maker maker(const Measurement &measurement) override {
        const DriverCalls &calls = driver_calls();
        return pair_maker(measurement, Memory{calls.*allocate, calls.*release});
    }
};

// The driver calls within a pair without a context argument, or on an unregistered stream.
class DriverQuestions : public DriverCandidate {
public:
    Team::Maker maker(const Measurement &measurement) override {
        return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
            enter();
            if (measurement.name == "ask_current") {
                return std::make_unique<AskingWork<WhichContext>>(WhichContext{});
            }
            auto stream = std::make_unique<Stream>(nullptr);
            auto work = std::make_unique<AskingWork<WhichStream>>(WhichStream{stream->get()});
            return std::make_unique<StreamWork>(std::move(stream), std::move(work));
        };
    }

private:
    struct WhichStream {
        CUstream stream = nullptr;
        decltype(&cuStreamIsCapturing) is_capturing = EMM_DRIVER_ENTRY(cuStreamIsCapturing);
        decltype(&cuStreamGetId) get_id = EMM_DRIVER_ENTRY(cuStreamGetId);

        void ask() const {
            CUstreamCaptureStatus status;
            unsigned long long id;
            expect(is_capturing(stream, &status), "cuStreamIsCapturing");
            expect(get_id(stream, &id), "cuStreamGetId");
        }
    };
    struct WhichContext {
        decltype(&cuCtxGetCurrent) get_current = EMM_DRIVER_ENTRY(cuCtxGetCurrent);
        decltype(&cuCtxGetId) get_id = EMM_DRIVER_ENTRY(cuCtxGetId);

        void ask() const {
            CUcontext current;
            unsigned long long id;
            expect(get_current(&current), "cuCtxGetCurrent");
            expect(get_id(current, &id), "cuCtxGetId");
        }
    };
    template <class Question> class AskingWork : public Work {
    public:
        explicit AskingWork(const Question &question) : question_(question) {}
        void run(uint64_t pairs) override {
            for (; pairs > 0; pairs--) {
                question_.ask();
                question_.ask();
            }
        }

    private:
        const Question question_;
    };
};

// The device's default pool, set to keep freed memory, as fast programs set it.
class DriverAsync : public DriverCandidate {
public:
    DriverAsync() {
        cuuint64_t threshold = ~cuuint64_t(0);
        EMM_REQUIRE_CUDA_ENTRY(cuDeviceGetDefaultMemPool, &pool_, device());
        EMM_REQUIRE_CUDA_ENTRY(cuMemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                               &threshold);
    }

    Team::Maker maker(const Measurement &measurement) override {
        const auto ring = std::make_shared<RingOf<DriverAsyncMemory>>(measurement.threads);
        size_t free = 0, all = 0;
        EMM_REQUIRE_CUDA(cuMemGetInfo, &free, &all);
        const size_t room = free / 3 * 2;
        return
            [=, this](uint32_t thread, const std::atomic<bool> &stopping) -> std::unique_ptr<Work> {
                enter();
                auto stream = std::make_unique<Stream>(nullptr);
                const DriverAsyncMemory memory = {allocate_, release_, stream->get()};
                auto work = make_work(measurement, memory, thread, room, ring, stopping);
                return std::make_unique<StreamWork>(std::move(stream), std::move(work));
            };
    }
    void return_cached() override { trim_(pool_, 0); }

private:
    const decltype(&::cuMemAllocAsync) allocate_ = EMM_DRIVER_ENTRY(cuMemAllocAsync);
    const decltype(&::cuMemFreeAsync) release_ = EMM_DRIVER_ENTRY(cuMemFreeAsync);
    const decltype(&::cuMemPoolTrimTo) trim_ = EMM_DRIVER_ENTRY(cuMemPoolTrimTo);
    CUmemoryPool pool_ = nullptr;
};

std::unique_ptr<Candidate> make_malloc() {
    return std::make_unique<LibraryCandidate>(std::malloc, std::free);
}

// Opened, not linked: linking mimalloc would replace malloc in the whole program.
std::unique_ptr<Candidate> make_mimalloc() {
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        throw Absent{"libmimalloc.so.2 is not installed"};
    }
    const auto allocate = reinterpret_cast<void *(*)(size_t)>(dlsym(library, "mi_malloc"));
    const auto release = reinterpret_cast<void (*)(void *)>(dlsym(library, "mi_free"));
    if (!allocate || !release) {
        throw Absent{"libmimalloc.so.2 has no mi_malloc or mi_free"};
    }
    return std::make_unique<LibraryCandidate>(allocate, release);
}

template <class Made> std::unique_ptr<Candidate> make() {
    return std::make_unique<Made>();
}

} // namespace

Json Candidate::driver() const {
    return nullptr;
}

const std::vector<CandidateKind> &candidate_kinds() {
    using Pairs = DriverPairs<DriverMemory, &DriverCalls::cuMemAlloc, &DriverCalls::cuMemFree>;
    using HostPairs =
        DriverPairs<DriverHostMemory, &DriverCalls::cuMemHostAlloc, &DriverCalls::cuMemFreeHost>;
    static const std::vector<CandidateKind> kinds = {
        {"empty", {"bare", "vtable", "clock"}, make_empty_candidate},
        {logged_kind, {"logged"}, make_empty_candidate},
        {tracked_kind, {"tracked"}, make_empty_candidate},
        {stacks_kind, {"tracked_stack"}, make_empty_candidate},
        {plugin_kind,
         {"pair", "pair_null", "pair_raw", "pair_unordered", "pair_busy", "pair_current", "handle",
          "mixed", "holes", "large", "idle", "host", "cross"},
         make_plugin_candidate},
        {"malloc", {"pair", "mixed", "cross"}, make_malloc},
        {"mimalloc", {"pair", "mixed", "cross"}, make_mimalloc},
        {"cuMemAlloc", {"pair"}, make<Pairs>},
        {"cuMemAllocAsync", {"pair", "mixed", "holes", "large", "cross"}, make<DriverAsync>},
        {"cuMemHostAlloc", {"host"}, make<HostPairs>},
        {"driver", {"ask_raw", "ask_current"}, make<DriverQuestions>},
        {"counter", {"counter"}, make<CounterCandidate>}};
    return kinds;
}

std::unique_ptr<Candidate> make_candidate(const std::string &kind) {
    for (const CandidateKind &known : candidate_kinds()) {
        if (kind == known.name) {
            return known.make();
        }
    }
    throw Absent{"there is no such thing to measure: " + kind};
}

} // namespace emm::tool
