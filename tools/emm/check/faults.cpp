// A failing driver: at the first call of an operation, at the second, and so on until no call
// fails; once, and from that call on.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

#include <cstdlib>
#include <cstring>
#include <memory>

namespace emm::tool::check {
namespace {

struct Step {
    std::string fault;
    emm_status status;
};

// A failed operation must keep nothing. If the driver also fails while the operation is undone
// (every call from there on), no plugin can return the memory.
void nothing_taken(uint64_t before, const Step &step) {
    expect(step.status >= EMM_OK || step.fault.back() == '+' || held_bytes() <= before,
           "after {} {} bytes stay taken from the driver", step.fault, held_bytes() - before);
}

// Memory that the driver refuses to take back stays taken.
enum class Leaks { none, of_refused_frees };

// Attempts with the first driver call failing, the second, and so on; each call alone, and each
// with all later ones. `attempt(fault)` tells whether a call has failed.
template <class Attempt> void each_fault(const Attempt &attempt) {
    unsigned injected = 0;
    for (const char *how : {"", "+"}) {
        for (unsigned n = 1; n < 500 && attempt(fmt::format("any@{}{}", n, how)); n++) {
            injected++;
        }
    }
    fmt::print(stderr, "{} driver calls failed\n", injected);
}

// The operation's status without the fault.
void must_again(const char *slot, const Step &step, emm_status status) {
    expect(status >= EMM_OK, "{} fails after {}, and again without it: {} {}", slot, step.fault,
           status, last_said().text);
}

// Each attempt has a manager of its own. `prepare` and `afterwards` run without faults; `prepare`
// gives the operation its subject.
template <class Prepare, class Operation, class Afterwards>
void fail_each(const Bare &bare, const Prepare &prepare, const Operation &operation,
               const Afterwards &afterwards, Leaks leaks = Leaks::none) {
    const uint64_t before = held_bytes();
    each_fault([&](const std::string &what) {
        BareManager manager(bare);
        auto state = prepare(manager);
        Step step = {what, EMM_OK};
        bool happened = false;
        {
            const Fault fault(what);
            forget_said();
            step.status = operation(manager, state);
            happened = fault.happened();
        }
        if (step.status < EMM_OK) {
            expect_described("after " + what + " the function", step.status);
        }
        afterwards(manager, state, step);
        manager.destroy();
        run_deferred(EMM_DEFERRED_RUN);
        if (leaks == Leaks::none) {
            nothing_taken(before, step);
        }
        return happened;
    });
}

struct Block {
    emm_deviceptr ptr = 77;
    size_t size = mib;
    emm_stream stream = EMM_STREAM_LEGACY;
};

void allocation_of(const CheckedPlugin &plugin, size_t size, emm_stream stream) {
    const Bare bare = on_device(plugin);
    const auto get = [&](const BareManager &manager, Block &block) {
        return EMM_SLOT(manager, memalloc, block.size, block.stream, &block.ptr);
    };
    fail_each(
        bare,
        [&](const BareManager &) {
            return Block{77, size, stream};
        },
        get,
        [&](const BareManager &manager, Block &block, const Step &step) {
            if (step.status < EMM_OK) {
                expect(block.ptr == 77, "memalloc fails after {} and has written to its output",
                       step.fault);
                must_again("memalloc", step, get(manager, block));
            }
            mark(nullptr, block.ptr, block.size, 1);
            manager.free(block.ptr, block.size, block.stream);
        });
}

void memalloc(const CheckedPlugin &plugin) {
    allocation_of(plugin, 3 * mib, EMM_STREAM_LEGACY);
}

void memalloc_unordered(const CheckedPlugin &plugin) {
    allocation_of(plugin, 1000, EMM_STREAM_UNORDERED);
}

// A free that fails may be tried again; memory that the driver refuses stays taken.
void memfree(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    for (const emm_stream stream : {EMM_STREAM_LEGACY, EMM_STREAM_UNORDERED}) {
        const auto release = [&](const BareManager &manager, const Block &block) {
            return EMM_SLOT(manager, memfree, block.ptr, block.size, stream);
        };
        fail_each(
            bare,
            [&](const BareManager &manager) {
                return Block{manager.alloc(mib), mib, stream};
            },
            release,
            [&](const BareManager &manager, const Block &block, const Step &step) {
                const emm_status again = step.status < EMM_OK ? release(manager, block) : EMM_OK;
                expect(again >= EMM_OK || again == EMM_E_NOT_OWNED,
                       "memfree fails after {}, and again without it: {} {}", step.fault, again,
                       last_said().text);
                manager.free(manager.alloc(mib), mib);
            },
            Leaks::of_refused_frees);
    }
}

void create(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const uint64_t before = held_bytes();
    each_fault([&](const std::string &what) {
        bool happened = false;
        auto *const none = reinterpret_cast<emm_manager *>(&happened);
        emm_manager *made = none;
        const emm_context_info info = describe_current();
        emm_status status = EMM_OK;
        {
            const Fault fault(what);
            status =
                call("create", bare.slots().create, &kit_host(), &info, bare.option_texts(), &made);
            happened = fault.happened();
        }
        if (status < EMM_OK) {
            expect(made == none, "create fails after {} and has written to its output", what);
        } else {
            call("destroy", bare.slots().destroy, made);
        }
        run_deferred(EMM_DEFERRED_RUN);
        nothing_taken(before, {what, status});
        return happened;
    });
    BareManager manager(bare);
    manager.free(manager.alloc(mib), mib);
}

std::vector<emm_deviceptr> fill(const BareManager &manager) {
    std::vector<emm_deviceptr> blocks;
    for (const size_t size : {size_t(1000), mib, 20 * mib}) {
        blocks.push_back(manager.alloc(size));
        blocks.push_back(manager.alloc(size));
    }
    return blocks;
}

void empty(const BareManager &manager, const std::vector<emm_deviceptr> &blocks) {
    free_all(manager, blocks, 0);
    run_deferred(EMM_DEFERRED_RUN);
}

void trim_refused(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().trim, "it has no trim");
    const auto cut = [](const BareManager &manager, size_t &released) {
        return EMM_SLOT(manager, trim, size_t(0), &released);
    };
    bool caches = false;
    fail_each(
        bare,
        [&](const BareManager &manager) {
            const uint64_t before = held_bytes();
            empty(manager, fill(manager));
            caches = caches || held_bytes() > before;
            return size_t(77);
        },
        cut,
        [&](const BareManager &manager, size_t &released, const Step &step) {
            expect(step.status >= EMM_OK || released == 77,
                   "trim fails after {} and has written to its output", step.fault);
            must_again("trim", step, cut(manager, released));
            empty(manager, fill(manager));
        },
        Leaks::of_refused_frees);
    if (!caches) {
        throw Skipped("nothing was cached");
    }
}

void reset(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().reset, "it has no reset: emm destroys and creates");
    const auto clear = [](const BareManager &manager, int) { return EMM_SLOT(manager, reset); };
    fail_each(
        bare,
        [](const BareManager &manager) {
            fill(manager);
            return 0;
        },
        clear,
        [&](const BareManager &manager, int, const Step &step) {
            must_again("reset", step, clear(manager, 0));
            empty(manager, fill(manager));
        },
        Leaks::of_refused_frees);
}

// Memory that the driver does not take in a pause stays where it is. A second pause changes
// nothing, and neither does a second resume.
void pause(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().pause, "it has no pause");
    const bool keeps = (bare.slots().capabilities & EMM_PLUGIN_PAUSE_KEEPS) != 0;
    using Blocks = std::vector<emm_deviceptr>;
    const auto sleep = [keeps](const BareManager &manager) {
        size_t released = 0;
        return EMM_SLOT(manager, pause, keeps ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD, &released);
    };
    const auto wake = [](const BareManager &manager) { return EMM_SLOT(manager, resume, 0u); };
    if (sleep(BareManager(bare)) == EMM_E_NOT_SUPPORTED) {
        throw Skipped("it does not pause with these options, or on this device");
    }
    for (const bool in_resume : {false, true}) {
        const auto step_of = [&](const BareManager &manager) {
            return in_resume ? wake(manager) : sleep(manager);
        };
        fail_each(
            bare,
            [&](const BareManager &manager) {
                const Blocks blocks = {manager.alloc(1000), manager.alloc(3 * mib)};
                for (const emm_deviceptr ptr : blocks) {
                    mark(nullptr, ptr, 1000, 0x5a);
                }
                expect(!in_resume || sleep(manager) >= EMM_OK, "pause fails: {}", last_said().text);
                return blocks;
            },
            [&](const BareManager &manager, const Blocks &) { return step_of(manager); },
            [&](const BareManager &manager, const Blocks &blocks, const Step &step) {
                must_again(in_resume ? "resume" : "pause", step, step_of(manager));
                must_again("resume", step, wake(manager));
                for (const emm_deviceptr ptr : blocks) {
                    expect(!keeps || is_marked(nullptr, ptr, 1000, 0x5a),
                           "after {} in {} a block has other content", step.fault,
                           in_resume ? "resume" : "pause");
                }
                empty(manager, blocks);
            },
            Leaks::of_refused_frees);
    }
}

struct Pinned {
    void *host = nullptr;
    emm_deviceptr device = 77;
};

void host_alloc(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().memhostalloc, "it leaves pinned memory to emm");
    const auto get = [](const BareManager &manager, Pinned &pinned) {
        return EMM_SLOT(manager, memhostalloc, mib, EMM_HOST_MAPPED, &pinned.host, &pinned.device);
    };
    fail_each(
        bare, [](const BareManager &) { return Pinned(); }, get,
        [&](const BareManager &manager, Pinned &pinned, const Step &step) {
            if (step.status < EMM_OK) {
                expect(!pinned.host && pinned.device == 77,
                       "memhostalloc fails after {} and has written to its outputs", step.fault);
                must_again("memhostalloc", step, get(manager, pinned));
            }
            std::memset(pinned.host, 1, mib);
            EMM_SLOT(manager, memhostfree, pinned.host, mib, EMM_HOST_MAPPED, EMM_STREAM_UNORDERED);
        });
}

// A range that could not be pinned is no longer pinned.
void pin(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().mempin, "it leaves pinning to emm");
    const std::unique_ptr<void, decltype(&std::free)> range(std::aligned_alloc(65536, 262144),
                                                            &std::free);
    const auto get = [&](const BareManager &manager, emm_deviceptr &device) {
        return EMM_SLOT(manager, mempin, range.get(), size_t(262144), EMM_HOST_MAPPED, &device);
    };
    fail_each(
        bare, [](const BareManager &) { return emm_deviceptr(77); }, get,
        [&](const BareManager &manager, emm_deviceptr &device, const Step &step) {
            if (step.status < EMM_OK) {
                expect(device == 77, "mempin fails after {} and has written to its output",
                       step.fault);
                if (step.fault.back() == '+') {
                    EMM_DRIVER_ENTRY(cuMemHostUnregister)(range.get());
                }
                must_again("mempin", step, get(manager, device));
            }
            EMM_MUST(manager, memunpin, range.get(), size_t(0));
        });
}

// destroy has to return, whatever the driver says.
void destroy(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    for (unsigned n = 1; n < 50; n++) {
        emm_manager *made = nullptr;
        expect(try_create(bare, &made) >= EMM_OK, "create fails: {}", last_said().text);
        if (bare.slots().initialize) {
            call("initialize", bare.slots().initialize, made);
        }
        emm_deviceptr ptr = 0;
        call("memalloc", bare.slots().memalloc, made, 5 * mib, EMM_STREAM_LEGACY, &ptr);
        EMM_REQUIRE_CUDA_ENTRY(cuCtxSynchronize);
        const Fault fault(fmt::format("any@{}", n));
        const emm_status status = call("destroy", bare.slots().destroy, made);
        expect(status >= EMM_E_PAUSED, "destroy returns {}", status);
        run_deferred(EMM_DEFERRED_RUN);
        if (!fault.happened()) {
            return;
        }
    }
}

// --- order: a wait or a query that failed says nothing about the work, and memory that is still in
// use must not be handed out ---

// Entries by which a plugin learns an order, or makes one.
constexpr const char *sources[] = {"cuEventQuery",       "cuStreamQuery",
                                   "cuEventSynchronize", "cuStreamSynchronize",
                                   "cuEventRecord",      "cuCtxRecordEvent",
                                   "cuStreamWaitEvent",  "cuCtxSynchronize",
                                   "cuEventCreate",      "any"};

void expect_apart(const std::string &fault, size_t size) {
    const std::string race = latest_race();
    expect(race.empty(), "after {} a block of {} bytes was handed out while it was in use: {}",
           fault, size, race);
}

// Leaves little of the device free. Memory that the driver refuses to take back stays taken, and
// the next turn needs a device as full as before.
class Crowd {
public:
    explicit Crowd(size_t left) {
        size_t free = 0, total = 0;
        EMM_REQUIRE_CUDA(cuMemGetInfo, &free, &total);
        EMM_REQUIRE_CUDA(cuMemAlloc, &ptr_, free - left);
    }
    ~Crowd() { driver_calls().cuMemFree(ptr_); }
    Crowd(const Crowd &) = delete;
    Crowd &operator=(const Crowd &) = delete;

private:
    CUdeviceptr ptr_ = 0;
};

// Hands memory from one stream to another while `what` fails.
void hand_over(const Bare &bare, size_t size, bool ordered, const std::string &what) {
    const Crowd crowd(256 * mib);
    const BareManager manager(bare);
    const OwnedStream first, second;
    const emm_deviceptr ptr = manager.alloc(size, first.get());
    mark(first.get(), ptr, size, 1);
    const emm_stream freed_on = ordered ? first.get() : EMM_STREAM_UNORDERED;
    emm_status freed = EMM_OK, got = EMM_OK;
    emm_deviceptr next = 0;
    {
        const Fault fault(what);
        freed = EMM_SLOT(manager, memfree, ptr, size, freed_on);
        got = EMM_SLOT(manager, memalloc, size, second.get(), &next);
    }
    if (got >= EMM_OK) {
        mark(second.get(), next, size, 2);
        expect_apart(what, size);
        manager.free(next, size, second.get());
    }
    if (freed < EMM_OK) {
        EMM_SLOT(manager, memfree, ptr, size, freed_on);
    }
    run_deferred(EMM_DEFERRED_RUN);
}

// A block of more than half the memory has to be reused at once; a small block need not.
void failed_waits(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    for (const size_t size : {size_t(5000), 3 * mib, 160 * mib}) {
        for (const bool ordered : {true, false}) {
            for (const char *source : sources) {
                for (const char *when : {"@1", "@2", "@1+"}) {
                    hand_over(bare, size, ordered, std::string(source) + when);
                }
            }
        }
    }
}

} // namespace

std::vector<Case> fault_cases() {
    return {
        {"faults/create", "EMM-P-21 EMM-P-09", "a create that fails leaves nothing behind", create,
         on_simulator},
        {"faults/memalloc", "EMM-P-21", "an allocation that fails leaves nothing behind", memalloc,
         on_simulator},
        {"faults/unordered", "EMM-P-21", "an unordered allocation that fails leaves nothing behind",
         memalloc_unordered, on_simulator},
        {"faults/memfree", "EMM-P-21", "a free that fails does not stop what comes next", memfree,
         on_simulator},
        {"faults/trim", "EMM-P-21", "a trim that fails can be done again", trim_refused,
         on_simulator},
        {"faults/reset", "EMM-P-21", "a reset that fails can be done again", reset, on_simulator},
        {"faults/pause", "EMM-P-21 EMM-P-65", "a pause or a resume that fails can be done again",
         pause, on_simulator},
        {"faults/memhostalloc", "EMM-P-21", "pinned memory that fails leaves nothing behind",
         host_alloc, on_simulator},
        {"faults/mempin", "EMM-P-21 EMM-P-33", "a range that could not be pinned is not pinned",
         pin, on_simulator},
        {"faults/destroy", "EMM-P-21", "a destroy that fails comes to its end", destroy,
         on_simulator},
        {"faults/order", "EMM-P-21 EMM-P-22", "a wait that fails hands no memory over too early",
         failed_waits, on_simulator, "progress=lazy,memory=64GiB"},
    };
}

} // namespace emm::tool::check
