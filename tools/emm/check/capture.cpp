// Captures: they stay valid, and what a graph uses stays its own.
#include "check/cases.h"
#include "check/hosted.h"

#include <array>
#include <string>

namespace emm::tool::check {
namespace {

// A capture in the mode that tolerates least; announced if its stream is.
class Capture {
public:
    Capture(const Hosted &hosted, const Lane &lane, bool announced)
        : hosted_(hosted), lane_(lane), announced_(announced) {
        if (announced_) {
            must(emm_capture_begin(hosted_.get(), lane_.get()), "announcing a capture");
        }
        require_cuda(
            EMM_CHECK_CUDA(cuStreamBeginCapture)(lane_.get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
            "cuStreamBeginCapture");
    }
    ~Capture() {
        if (exec_) {
            EMM_CHECK_CUDA(cuGraphExecDestroy)(exec_);
        }
        if (graph_) {
            EMM_CHECK_CUDA(cuGraphDestroy)(graph_);
        }
    }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;

    void end(const char *after) {
        const CUresult result = EMM_CHECK_CUDA(cuStreamEndCapture)(lane_.get(), &graph_);
        if (announced_) {
            must(emm_capture_end(hosted_.get(), lane_.get()), "announcing a capture's end");
        }
        expect(result == CUDA_SUCCESS, "the capture was invalidated by {}: CUDA error {}", after,
               static_cast<int>(result));
    }

    void launch(const Lane &lane) {
        if (!exec_) {
            require_cuda(EMM_CHECK_CUDA(cuGraphInstantiateWithFlags)(&exec_, graph_, 0),
                         "cuGraphInstantiateWithFlags");
        }
        require_cuda(EMM_CHECK_CUDA(cuGraphLaunch)(exec_, lane.get()), "cuGraphLaunch");
    }

private:
    const Hosted &hosted_;
    const Lane &lane_;
    bool announced_;
    CUgraph graph_ = nullptr;
    CUgraphExec exec_ = nullptr;
};

// Calls for another stream, by the thread that captures.
void work_beside(const Hosted &hosted, const Lane &other) {
    for (const size_t size : {size_t(1000), mib, 40 * mib}) {
        for (int i = 0; i < 6; i++) {
            const emm_deviceptr ptr = hosted.alloc(size, other.get());
            mark(other.get(), ptr, size, 1);
            hosted.free(ptr, size, other.get());
        }
    }
}

void bystander(const Subject &subject) {
    const Hosted hosted(subject);
    Lane lane;
    const Lane other;
    hosted.enlist(lane);
    work_beside(hosted, other);
    const emm_deviceptr before = hosted.alloc(mib);
    {
        Capture capture(hosted, lane, true);
        work_beside(hosted, other);
        for (const size_t size : {size_t(1000), mib, 40 * mib}) {
            hosted.free(hosted.alloc(size), size);
        }
        hosted.free(before, mib);
        must(emm_trim(hosted.get(), 0, nullptr), "trim");
        capture.end("calls that had nothing to do with it");
    }
    hosted.retire(lane);
    work_beside(hosted, other);
}

void unannounced(const Subject &subject) {
    const Hosted hosted(subject);
    const Lane lane, other;
    Capture capture(hosted, lane, false);
    work_beside(hosted, other);
    capture.end("calls for another stream");
}

// A manager may take no part in captures, if it leaves them valid and does not claim otherwise.
void accept_refusal(const Hosted &hosted, Capture &capture, const std::string &what) {
    capture.end((what + " that was refused").c_str());
    expect(!(hosted.capabilities() & EMM_PLUGIN_CAPTURE),
           "it claims EMM_PLUGIN_CAPTURE and refuses {} in a capture", what);
    throw Skipped("it refuses " + what + " in a capture, and says so");
}

void inside(const Subject &subject) {
    const Hosted hosted(subject);
    Lane lane;
    const Lane other;
    hosted.enlist(lane);
    // What the stream still has to do keeps no graph from running on another one.
    const emm_deviceptr pending = hosted.alloc(mib, lane.get());
    mark(lane.get(), pending, mib, 4);
    hosted.free(pending, mib, lane.get());
    {
        Capture capture(hosted, lane, true);
        emm_deviceptr first = 0, second = 0;
        const emm_status got = emm_memalloc(hosted.get(), mib, lane.get(), &first);
        if (got == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "an allocation");
        }
        must(got, "memalloc in a capture");
        mark(lane.get(), first, mib, 1);
        hosted.free(first, mib, lane.get());
        second = hosted.alloc(mib, lane.get());
        mark(lane.get(), second, mib, 2);
        hosted.free(second, mib, lane.get());
        capture.end("allocations in it");
        capture.launch(other);
        other.synchronize();
        for (int i = 0; i < 3; i++) {
            capture.launch(lane);
            const emm_deviceptr mine = hosted.alloc(mib, other.get());
            mark(other.get(), mine, mib, 3);
            expect(is_marked(other.get(), mine, mib, 3), "a graph wrote to somebody's memory");
            hosted.free(mine, mib, other.get());
            lane.synchronize();
        }
    }
    hosted.retire(lane);
    work_beside(hosted, other);
}

// So many that a manager has to look further than at its nearest free block.
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

// The graph uses the block whenever it runs, though it was freed while it was captured.
void free_inside(const Subject &subject) {
    const Hosted hosted(subject);
    Lane lane;
    const Lane other;
    hosted.enlist(lane);
    const emm_deviceptr ptr = hosted.alloc(mib, lane.get());
    {
        Capture capture(hosted, lane, true);
        mark(lane.get(), ptr, mib, 1);
        const emm_status freed = emm_memfree(hosted.get(), ptr, mib, lane.get());
        if (freed == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "a free");
        }
        must(freed, "memfree in a capture");
        capture.end("a free in it");
        for (int i = 0; i < 3; i++) {
            for (const emm_stream stream : {lane.get(), other.get(), EMM_STREAM_UNORDERED}) {
                expect_others(hosted, stream, ptr);
            }
            must(emm_trim(hosted.get(), 0, nullptr), "trim"); // and what was pending is done
            capture.launch(lane);
            const emm_deviceptr mine = hosted.alloc(mib, other.get());
            mark(other.get(), mine, mib, 3);
            lane.synchronize();
            expect(is_marked(other.get(), mine, mib, 3),
                   "memory that a graph still writes to was handed out");
            hosted.free(mine, mib, other.get());
        }
    }
    hosted.retire(lane);
}

// When the graphs are gone, what was freed in them is free.
void ended_graphs(const Subject &subject) {
    const Hosted hosted(subject);
    Lane lane;
    hosted.enlist(lane);
    const uint64_t idle = held_bytes();
    for (int i = 0; i < 10; i++) {
        constexpr size_t size = 20 * mib;
        Capture capture(hosted, lane, true);
        emm_deviceptr ptr = 0;
        const emm_status got = emm_memalloc(hosted.get(), size, lane.get(), &ptr);
        if (got == EMM_E_CAPTURING) {
            accept_refusal(hosted, capture, "an allocation");
        }
        must(got, "memalloc in a capture");
        mark(lane.get(), ptr, size, 1);
        hosted.free(ptr, size, lane.get());
        capture.end("an allocation and its free");
        capture.launch(lane);
        lane.synchronize();
    }
    hosted.retire(lane);
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
         "memory allocated in a capture is nobody else's while its graph lives, or refused without "
         "harm",
         inside, every_mode},
        {"capture/free-inside", "EMM-P-25", "a free in a capture waits for the graph's end",
         free_inside, every_mode},
        {"capture/ended", "EMM-P-54", "what was freed in graphs comes back when they are gone",
         ended_graphs, on_simulator | every_mode},
    };
}

} // namespace emm::tool::check
