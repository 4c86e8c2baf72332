// Captures: they stay valid, and a graph's memory stays its own.
#include "check/hosted.h"
#include "check/plan.h"

#include <array>
#include <string>

namespace emm::tool::check {
namespace {

// A capture in the global mode, which tolerates the fewest calls; announced if its stream is
// registered.
class CaptureScope {
public:
    CaptureScope(const Hosted &hosted, const OwnedStream &owned, bool announced)
        : hosted_(hosted), stream_(owned), announced_(announced) {
        if (announced_) {
            must(emm_capture_begin(hosted_.get(), stream_.get()), "announcing a capture");
        }
        EMM_REQUIRE_CUDA_ENTRY(cuStreamBeginCapture, stream_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    ~CaptureScope() {
        if (exec_) {
            EMM_DRIVER_ENTRY(cuGraphExecDestroy)(exec_);
        }
        if (graph_) {
            EMM_DRIVER_ENTRY(cuGraphDestroy)(graph_);
        }
    }
    CaptureScope(const CaptureScope &) = delete;
    CaptureScope &operator=(const CaptureScope &) = delete;

    void end(const char *after) {
        const CUresult result = EMM_DRIVER_ENTRY(cuStreamEndCapture)(stream_.get(), &graph_);
        if (announced_) {
            must(emm_capture_end(hosted_.get(), stream_.get()), "announcing a capture's end");
        }
        expect(result == CUDA_SUCCESS, "the capture was invalidated by {}: CUDA error {}", after,
               static_cast<int>(result));
    }

    void launch(const OwnedStream &owned) {
        if (!exec_) {
            EMM_REQUIRE_CUDA_ENTRY(cuGraphInstantiateWithFlags, &exec_, graph_, 0);
        }
        EMM_REQUIRE_CUDA_ENTRY(cuGraphLaunch, exec_, owned.get());
    }

private:
    const Hosted &hosted_;
    const OwnedStream &stream_;
    bool announced_;
    CUgraph graph_ = nullptr;
    CUgraphExec exec_ = nullptr;
};

// Calls for another stream, by the thread that captures.
void work_beside(const Hosted &hosted, const OwnedStream &other) {
    for (const size_t size : {size_t(1000), mib, 40 * mib}) {
        for (int i = 0; i < 6; i++) {
            const emm_deviceptr ptr = hosted.alloc(size, other.get());
            mark(other.get(), ptr, size, 1);
            hosted.free(ptr, size, other.get());
        }
    }
}

void bystander(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    const OwnedStream other;
    hosted.enlist(owned);
    work_beside(hosted, other);
    const emm_deviceptr before = hosted.alloc(mib);
    {
        CaptureScope capture(hosted, owned, true);
        work_beside(hosted, other);
        for (const size_t size : {size_t(1000), mib, 40 * mib}) {
            hosted.free(hosted.alloc(size), size);
        }
        hosted.free(before, mib);
        must(emm_trim(hosted.get(), 0, nullptr), "trim");
        capture.end("calls that had nothing to do with it");
    }
    hosted.retire(owned);
    work_beside(hosted, other);
}

// Leaves a graph that has ended and that held memory, unless its free was refused.
void leave_graph(const Hosted &hosted, const OwnedStream &owned) {
    const emm_deviceptr ptr = hosted.alloc(mib, owned.get());
    emm_status freed = EMM_OK;
    {
        CaptureScope capture(hosted, owned, true);
        mark(owned.get(), ptr, mib, 1);
        freed = emm_memfree(hosted.get(), ptr, mib, owned.get());
        capture.end("a free in it");
    }
    if (freed < EMM_OK) {
        hosted.free(ptr, mib, owned.get());
    }
}

// Pending frees need a context event. None of these calls may record one.
void unannounced(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream announced;
    const OwnedStream owned, other;
    hosted.enlist(announced);
    const emm_deviceptr ptr = hosted.alloc(mib);
    leave_graph(hosted, announced);
    must(emm_capture_begin(hosted.get(), announced.get()), "announcing a capture");
    hosted.free(ptr, mib);
    {
        CaptureScope capture(hosted, owned, false);
        work_beside(hosted, other);
        must(emm_capture_end(hosted.get(), announced.get()), "announcing a capture's end");
        work_beside(hosted, other);
        hosted.retire(announced);
        capture.end("calls for other streams");
    }
}

// A manager may ignore captures, if it leaves them valid and does not claim otherwise.
void accept_refusal(const Hosted &hosted, CaptureScope &capture, const std::string &what) {
    capture.end((what + " that was refused").c_str());
    expect(!(hosted.capabilities() & EMM_PLUGIN_CAPTURE),
           "it claims EMM_PLUGIN_CAPTURE and refuses {} in a capture", what);
    throw Skipped("it refuses " + what + " in a capture, and says so");
}

void inside(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    const OwnedStream other;
    hosted.enlist(owned);
    // A graph may run on another stream while this stream's work is pending.
    const emm_deviceptr pending = hosted.alloc(mib, owned.get());
    mark(owned.get(), pending, mib, 4);
    hosted.free(pending, mib, owned.get());
    {
        CaptureScope capture(hosted, owned, true);
        emm_deviceptr first = 0, second = 0;
        const emm_status got = emm_memalloc(hosted.get(), mib, owned.get(), &first);
        if (got == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "an allocation");
        }
        hosted.skip_if_limited(got);
        must(got, "memalloc in a capture");
        mark(owned.get(), first, mib, 1);
        hosted.free(first, mib, owned.get());
        second = hosted.alloc(mib, owned.get());
        mark(owned.get(), second, mib, 2);
        hosted.free(second, mib, owned.get());
        capture.end("allocations in it");
        capture.launch(other);
        other.synchronize();
        for (int i = 0; i < 3; i++) {
            capture.launch(owned);
            const emm_deviceptr mine = hosted.alloc(mib, other.get());
            mark(other.get(), mine, mib, 3);
            expect(is_marked(other.get(), mine, mib, 3),
                   "a graph wrote to memory of another owner");
            hosted.free(mine, mib, other.get());
            owned.synchronize();
        }
    }
    hosted.retire(owned);
    work_beside(hosted, other);
}

// Takes so many blocks that a manager has to look beyond its nearest free block.
void expect_others(const Hosted &hosted, emm_stream stream, emm_deviceptr graphs) {
    std::array<emm_deviceptr, 40> mine;
    for (emm_deviceptr &each : mine) {
        each = hosted.alloc(mib, stream);
        expect(each + mib <= graphs || graphs + mib <= each,
               "memory that a graph still uses was handed out");
    }
    for (const emm_deviceptr each : mine) {
        hosted.free(each, mib, stream);
    }
}

// `ptr` was freed in the capture, or the free was refused: each run of the graph still uses it.
void expect_kept(const Hosted &hosted, CaptureScope &capture, const OwnedStream &owned,
                 const OwnedStream &other, emm_deviceptr ptr) {
    for (int i = 0; i < 3; i++) {
        for (const emm_stream stream : {owned.get(), other.get(), EMM_STREAM_UNORDERED}) {
            expect_others(hosted, stream, ptr);
        }
        must(emm_trim(hosted.get(), 0, nullptr), "trim"); // pending frees are done, too
        capture.launch(owned);
        const emm_deviceptr mine = hosted.alloc(mib, other.get());
        mark(other.get(), mine, mib, 3);
        owned.synchronize();
        expect(is_marked(other.get(), mine, mib, 3),
               "memory that a graph still writes to was handed out");
        hosted.free(mine, mib, other.get());
    }
}

// A block freed inside a capture is still used by each run of the graph.
void free_inside(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    const OwnedStream other;
    hosted.enlist(owned);
    const emm_deviceptr ptr = hosted.alloc(mib, owned.get());
    {
        CaptureScope capture(hosted, owned, true);
        mark(owned.get(), ptr, mib, 1);
        const emm_status freed = emm_memfree(hosted.get(), ptr, mib, owned.get());
        if (freed == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "a free");
        }
        must(freed, "memfree in a capture");
        capture.end("a free in it");
        expect_kept(hosted, capture, owned, other, ptr);
    }
    hosted.retire(owned);
}

// Whichever driver call fails, the free is refused or waits for the graph's end.
void failed_free(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    const OwnedStream other;
    hosted.enlist(owned);
    bool happened = true;
    for (unsigned n = 1; happened && n < 100; n++) {
        const emm_deviceptr ptr = hosted.alloc(mib, owned.get());
        emm_status freed = EMM_OK;
        {
            CaptureScope capture(hosted, owned, true);
            mark(owned.get(), ptr, mib, 1);
            {
                const Fault fault(fmt::format("any@{}", n));
                freed = emm_memfree(hosted.get(), ptr, mib, owned.get());
                happened = fault.happened();
            }
            capture.end("a free that failed");
            expect_kept(hosted, capture, owned, other, ptr);
        }
        if (freed < EMM_OK) {
            hosted.free(ptr, mib);
        }
    }
    hosted.retire(owned);
}

// Memory freed inside captures is free when the graphs are gone.
void ended_graphs(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    OwnedStream owned;
    hosted.enlist(owned);
    const uint64_t idle = held_bytes();
    for (int i = 0; i < 10; i++) {
        constexpr size_t size = 20 * mib;
        CaptureScope capture(hosted, owned, true);
        emm_deviceptr ptr = 0;
        const emm_status got = emm_memalloc(hosted.get(), size, owned.get(), &ptr);
        if (got == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "an allocation");
        }
        hosted.skip_if_limited(got);
        must(got, "memalloc in a capture");
        mark(owned.get(), ptr, size, 1);
        hosted.free(ptr, size, owned.get());
        capture.end("an allocation and its free");
        capture.launch(owned);
        owned.synchronize();
    }
    hosted.retire(owned);
    expect_all_back(hosted, idle, "10 graphs that freed 20 MiB each are gone");
}

} // namespace

std::vector<Case> capture_cases() {
    return {
        {"capture/bystander", "EMM-P-25", "calls beside an announced capture leave it valid",
         bystander, every_mode},
        {"capture/unannounced", "EMM-P-25", "ordered calls beside any capture leave it valid",
         unannounced, every_mode},
        {"capture/inside", "EMM-P-25 EMM-P-41",
         "memory allocated in a capture is its graph's alone while that lives, or refused without "
         "harm",
         inside, every_mode},
        {"capture/free-inside", "EMM-P-25", "a free in a capture waits for the graph's end",
         free_inside, every_mode},
        {"capture/failed-free", "EMM-P-21 EMM-P-25",
         "a free in a capture that the driver fails is refused or waits for the graph's end",
         failed_free, on_simulator | every_mode},
        {"capture/ended", "EMM-P-54", "memory freed in graphs comes back when the graphs are gone",
         ended_graphs, on_simulator | every_mode},
    };
}

} // namespace emm::tool::check
