// Order when the driver fails: a wait or a query that failed says nothing about the work, and
// memory that is still in use must not be handed out.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/plan.h"

namespace emm::tool::check {
namespace {

// Entries by which a plugin learns of order, or makes it.
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
        require_cuda(driver_calls().cuMemGetInfo(&free, &total), "cuMemGetInfo");
        require_cuda(driver_calls().cuMemAlloc(&ptr_, free - left), "cuMemAlloc");
    }
    ~Crowd() { driver_calls().cuMemFree(ptr_); }
    Crowd(const Crowd &) = delete;
    Crowd &operator=(const Crowd &) = delete;

private:
    CUdeviceptr ptr_ = 0;
};

// From one stream to another while `what` fails.
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

// A block of more than half the memory has to be reused at once; a small one need not.
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

std::vector<Case> order_fault_cases() {
    return {
        {"faults/order", "EMM-P-21 EMM-P-22", "a wait that fails hands no memory over too early",
         failed_waits, on_simulator, "progress=lazy,memory=64GiB"},
    };
}

} // namespace emm::tool::check
