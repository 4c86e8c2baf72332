#include "workloads.h"

#include "asked.h"
#include "changed_options.h"
#include "pools.h"
#include "starts.h"

#include <cstdlib>
#include <thread>

namespace faults {
namespace {

void device(Run &run) {
    for (const emm_stream stream :
         {EMM_STREAM_LEGACY, EMM_STREAM_PER_THREAD, EMM_STREAM_UNORDERED,
          emm_stream(run.world().known()), emm_stream(run.world().other())}) {
        run.alloc(1000, stream);
        run.alloc(3 * mib, stream);
        run.free_oldest();
    }
    run.free_all();
}

void host(Run &run) {
    for (const uint32_t flags :
         {0u, EMM_HOST_MAPPED, EMM_HOST_PORTABLE, EMM_HOST_MAPPED | EMM_HOST_WRITE_COMBINED}) {
        run.hostalloc(5000, flags);
        run.hostalloc(3 * mib, flags, run.world().known());
        run.hostalloc(3 * mib, flags);
    }
    run.free_all();
    run.hostalloc(5000, EMM_HOST_MAPPED);
    run.free_all();
}

void pin(Run &run) {
    run.pin(64 * kib, 0);
    run.pin(64 * kib, EMM_HOST_MAPPED);
    run.free_all();
}

void managed(Run &run) {
    run.managed(64 * kib);
    run.managed(3 * mib, run.world().known());
    run.free_all();
}

void handles(Run &run) {
    emm_context *const of = run.context();
    emm_memory *const whole = run.handle("memory_alloc", [&](emm_memory **made) {
        return emm_memory_alloc(of, 3 * mib, run.world().known(), made);
    });
    run.handle("memory_view",
               [&](emm_memory **made) { return emm_memory_view(whole, 100, mib, made); });
    run.handle("memory_hostalloc", [&](emm_memory **made) {
        return emm_memory_hostalloc(of, 5000, EMM_HOST_MAPPED, made);
    });
    run.handle("memory_managed", [&](emm_memory **made) {
        return emm_memory_managed(of, 5000, EMM_ATTACH_GLOBAL, made);
    });
    auto *const own = static_cast<char *>(std::aligned_alloc(4096, 64 * kib));
    emm_memory *const pinned = run.handle("memory_pin", [&](emm_memory **made) {
        return emm_memory_pin(of, own, 64 * kib, 0, own, &std::free, made);
    });
    if (!pinned) {
        std::free(own);
    }
    run.handle("memory_wrap", [&](emm_memory **made) {
        return emm_memory_wrap(of, 0, &run, sizeof run, nullptr, nullptr, made);
    });
    auto info = sized<emm_memory_info>();
    run.call("memory_get_info", [&] { return emm_memory_get_info(whole, &info); });
    run.call("memory_free", [&] { return emm_memory_free(whole); });
    run.free_all();
}

// Slabs, segments of each size, and memory freed on other streams than its own.
void growth(Run &run) {
    for (int i = 0; i < 12; i++) {
        run.alloc(size_t(200) << (i % 6), run.world().known());
    }
    for (const size_t size : {mib, 3 * mib, 24 * mib}) {
        run.alloc(size, run.world().known());
        run.alloc(size, run.world().other());
    }
    run.free_every_second();
    run.alloc(12 * mib, EMM_STREAM_UNORDERED);
    run.free_all();
}

void streams(Run &run) {
    emm_context *const of = run.context();
    CUstream stream = nullptr;
    run.own(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream");
    if (run.call("stream_register", [&] { return emm_stream_register(of, stream); })) {
        run.undo_later("stream_retire", [=] { return emm_stream_retire(of, stream); });
    }
    run.alloc(5000, stream);
    run.alloc(3 * mib, stream);
    const emm_deviceptr block = run.latest();
    run.call("record_use", [&] {
        const emm_status status = emm_record_use(of, block, 0, run.world().known());
        return status == EMM_E_NOT_SUPPORTED ? EMM_OK : status;
    });
    auto around = sized<emm_block_info>();
    run.call("query", [&] {
        const emm_status status = emm_query(of, block + 5, &around);
        return status == EMM_E_NOT_SUPPORTED ? EMM_OK : status;
    });
    auto stats = sized<emm_stats>();
    size_t free = 77, total = 77;
    run.call("get_stats", [&] { return emm_get_stats(of, &stats); });
    if (!run.call("reset_peaks", [&] { return emm_context_reset_peaks(of); })) {
        emm_stats after = stats;
        run.call("get_stats", [&] { return emm_get_stats(of, &after); });
        run.left_alone("reset_peaks", after.peak_live_bytes, stats.peak_live_bytes);
    }
    if (!run.call("get_memory_info", [&] { return emm_get_memory_info(of, &free, &total); })) {
        run.left_alone("get_memory_info", free + total, size_t(154));
    }
    run.free_all();
    run.clean_up(); // a stream that is registered must live
    if (run.is_clean()) {
        CU(cuStreamDestroy)(stream);
    }
}

void trim(Run &run) {
    for (const size_t size : {size_t(3000), mib, 20 * mib}) {
        run.alloc(size, run.world().known());
        run.hostalloc(size, 0);
    }
    run.free_all();
    for (const size_t keep : {8 * mib, size_t(0)}) {
        size_t released = 77;
        if (!run.call("trim", [&] { return emm_trim(run.context(), keep, &released); })) {
            run.left_alone("trim", released, size_t(77));
            return;
        }
    }
}

// Large blocks out of the remains of small ones, and memory that waits until no block is on its
// way.
void remap(Run &run) {
    for (int i = 0; i < 6; i++) {
        run.alloc(4 * mib, run.world().known());
    }
    run.free_every_second();
    run.own(CU(cuStreamSynchronize)(run.world().known()) == CUDA_SUCCESS, "waiting");
    run.alloc(10 * mib, run.world().known());
    run.alloc(11 * mib, run.world().other());
    run.free_all();
    for (const uint32_t flags : {EMM_ACCESS_READ_WRITE, EMM_ACCESS_NONE}) {
        run.call("set_peer_access", [&] {
            const emm_status status = emm_set_peer_access(run.context(), 1, flags);
            return status == EMM_E_NOT_SUPPORTED ? EMM_OK : status;
        });
    }
}

void reset(Run &run) {
    run.alloc(3000, run.world().known());
    run.alloc(9 * mib, EMM_STREAM_UNORDERED);
    run.hostalloc(mib, EMM_HOST_MAPPED);
    run.managed(mib);
    emm_memory *const inert = run.handle("memory_alloc", [&](emm_memory **made) {
        return emm_memory_alloc(run.context(), mib, EMM_STREAM_LEGACY, made);
    });
    run.free_oldest();
    if (run.call("context_reset", [&] { return emm_context_reset(run.context()); })) {
        run.forget();
        run.call("releasing what was reset", [&] { return emm_memory_release(inert); });
    } else {
        run.undo_later("context_reset", [&run] {
            const emm_status status = emm_context_reset(run.context());
            if (status >= EMM_OK) {
                run.forgive();
            }
            return status;
        });
    }
    run.alloc(mib, EMM_STREAM_LEGACY);
    run.free_all();
}

// Memory that a graph writes each time it runs. The graph's capture freed it, or that free was
// refused.
struct OfGraph {
    emm_deviceptr ptr;
    size_t size;
    bool host;
};
constexpr unsigned char by_graph = 7, by_program = 1;
constexpr size_t written = 4096; // of each block, at its beginning

// The program goes on without failures: none of its memory may be the graph's.
void launch_again(Run &run, CUgraphExec made, const std::vector<OfGraph> &graphs) {
    emm_context *const of = run.context();
    const CUstream stream = run.world().known(), other = run.world().other();
    const auto check_alone = [&](const OfGraph &one, emm_stream on) {
        emm_deviceptr ptr = 0;
        void *host = nullptr;
        must((one.host ? emm_memhostalloc(of, one.size, EMM_HOST_MAPPED, &host, &ptr)
                       : emm_memalloc(of, one.size, on, &ptr)) == EMM_OK,
             "memory beside a graph");
        unsigned char first = 0;
        must(CU(cuMemsetD8Async)(ptr, by_program, written, other) == CUDA_SUCCESS, "work");
        must(CU(cuStreamSynchronize)(other) == CUDA_SUCCESS, "waiting for work");
        must(CU(cuGraphLaunch)(made, stream) == CUDA_SUCCESS, "launching a graph");
        must(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS, "waiting for a graph");
        must(CU(cuMemcpyDtoH)(&first, ptr, 1) == CUDA_SUCCESS, "reading");
        if (first == by_graph) {
            run.complain(std::to_string(one.size) + " bytes of a living graph were handed out");
        }
        must((one.host ? emm_memhostfree(of, host, one.size, EMM_HOST_MAPPED, EMM_STREAM_UNORDERED)
                       : emm_memfree(of, ptr, one.size, on)) == EMM_OK,
             "a free beside a graph");
    };
    for (const emm_stream on : {EMM_STREAM_UNORDERED, emm_stream(other), EMM_STREAM_UNORDERED}) {
        for (const OfGraph &one : graphs) {
            check_alone(one, on);
        }
        must(emm_trim(of, 0, nullptr) == EMM_OK, "a trim beside a graph");
    }
}

void fill_graph(Run &run, CUstream stream) {
    run.alloc(5000, stream);
    run.alloc(6 * mib, stream);
    run.alloc(7 * mib, run.world().other());
    run.free_latest(3);
    run.alloc(6 * mib, stream);
    run.free_latest(1);
}

// The stream is registered and its capture announced, or neither.
void capture_on(Run &run, CUstream stream, bool announced) {
    emm_context *const of = run.context();
    const auto end = [=] { return announced ? emm_capture_end(of, stream) : EMM_OK; };
    std::vector<OfGraph> graphs;
    run.alloc(mib, stream);
    run.alloc(mib, EMM_STREAM_UNORDERED);
    for (const bool host : {true, false}) {
        host ? run.hostalloc(mib, EMM_HOST_MAPPED, stream) : run.alloc(32 * mib, stream);
        graphs.push_back({run.latest(), host ? mib : 32 * mib, host});
    }
    if (!run.call("capture_begin",
                  [&] { return announced ? emm_capture_begin(of, stream) : EMM_OK; })) {
        return;
    }
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    if (run.own(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
                "beginning a capture")) {
        for (const OfGraph &one : graphs) {
            run.own(CU(cuMemsetD8Async)(one.ptr, by_graph, written, stream) == CUDA_SUCCESS,
                    "work in a capture");
        }
        run.free_latest(2);
        fill_graph(run, stream);
        if (CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS) {
            run.own(CU(cuGraphInstantiateWithFlags)(&made, graph, 0) == CUDA_SUCCESS,
                    "an instance");
            CU(cuGraphDestroy)(graph);
        } else if (!run.has_failed() && !run.may_break()) {
            run.complain("a capture has become invalid, and no call has failed");
        }
    }
    if (run.has_failed()) {
        must(end() >= EMM_OK || run.may_break(), "announcing a capture's end");
    } else {
        run.call("capture_end", end);
    }
    if (made && !run.may_break()) {
        launch_again(run, made, graphs);
    }
    run.free_all();
    run.alloc(3 * mib, stream);
    if (made) {
        CU(cuGraphExecDestroy)(made);
    }
    run.free_all();
    run.call("trim", [&] { return emm_trim(of, 0, nullptr); });
}

void capture(Run &run) {
    capture_on(run, run.world().known(), true);
    capture_on(run, run.world().other(), false);
}

// The queue, its limits, and a section in which frees wait.
void deferred(Run &run) {
    emm_context *const of = run.context();
    if (run.call("defer_cleanup_begin", [&] { return emm_defer_cleanup_begin(of); })) {
        run.undo_later(
            "defer_cleanup_end", [=] { return emm_defer_cleanup_end(of); }, true);
    }
    for (int i = 0; i < 6; i++) {
        run.alloc(mib, run.world().known());
        run.hostalloc(5000, 0);
        run.managed(5000);
    }
    run.free_all();
    for (int i = 0; i < 12; i++) {
        run.alloc(3 * mib, EMM_STREAM_UNORDERED);
        run.free_all();
    }
}

// The first calls of a new thread, and its end.
void thread(Run &run) {
    std::thread([&] {
        const Outside program;
        must(CU(cuCtxSetCurrent)(run.world().cuda()) == CUDA_SUCCESS, "a thread's context");
        for (const emm_stream stream :
             {emm_stream(run.world().known()), EMM_STREAM_LEGACY, EMM_STREAM_UNORDERED}) {
            run.alloc(1000, stream);
            run.alloc(3 * mib, stream);
        }
        run.hostalloc(5000, 0);
        run.call("a free of what is not there", [&] {
            const emm_status status = emm_memfree(run.context(), 0x1000, 0, nullptr);
            return status == EMM_E_NOT_OWNED ? EMM_OK : status;
        });
        run.free_all();
    }).join();
}

// Each context has marked the work of the other, for portable memory that was freed unordered.
void leave_marks(Run &run, const World &second) {
    emm_context *const first = run.context();
    for (int i = 0; i < 2; i++) {
        for (emm_context *const of : {first, second.emm()}) {
            run.set_context(of);
            run.hostalloc(3 * mib, EMM_HOST_PORTABLE);
        }
        run.set_context(first);
        run.free_latest(2);
    }
}

void retire(Run &run) {
    const World second;
    leave_marks(run, second);
    run.alloc(3000, run.world().known());
    run.alloc(9 * mib, EMM_STREAM_UNORDERED);
    run.hostalloc(mib, EMM_HOST_MAPPED);
    run.managed(mib);
    run.free_oldest();
    if (run.call("context_retire", [&] { return emm_context_retire(run.context()); })) {
        run.forget();
    }
}

// By `emm top`, from without: no failure in the answer may be the program's. A server whose calls
// go on to fail cannot answer.
void asked(Run &run) {
    run.alloc(mib, run.world().known());
    if (!ask_this_process(fails_for_good() ? 100 : 10'000) && !fails_for_good()) {
        run.complain("emm top was neither answered nor hung up on");
    }
    run.free_all();
}

void shut_down(Run &run) {
    const World second;
    leave_marks(run, second);
    run.alloc(3000, run.world().known());
    run.alloc(9 * mib, EMM_STREAM_UNORDERED);
    run.hostalloc(mib, EMM_HOST_MAPPED);
    run.free_oldest();
    if (run.call("shutdown", [&] { return emm_shutdown(); })) {
        run.call("a late free", [&] { return emm_memfree(run.context(), 0x1000, 0, nullptr); });
        run.forget();
    }
}

void shut_down_again(Run &run) {
    run.call("shutdown", [&] { return emm_shutdown(); });
}

void peers(Run &run) {
    emm_context *const of = run.context();
    run.alloc(mib, run.world().known());
    for (const uint32_t flags : {EMM_ACCESS_READ_WRITE, EMM_ACCESS_NONE}) {
        run.call("set_peer_access", [&] { return emm_set_peer_access(of, 1, flags); });
        run.alloc(9 * mib, run.world().known());
    }
    run.free_all();
}

void share(Run &run) {
    emm_context *const of = run.context();
    emm_memory *const memory = run.handle("memory_alloc", [&](emm_memory **made) {
        return emm_memory_alloc(of, 5 * mib, run.world().known(), made);
    });
    emm_ipc_handle handle = {};
    if (run.call("memory_export", [&] { return emm_memory_export(memory, &handle); })) {
        run.undo_later("release_ipc_handle", [=] { return emm_release_ipc_handle(of, &handle); });
    } else if (memory) {
        run.left_alone("memory_export", handle.size, uint64_t(0));
    }
    run.free_all();
}

void open(Run &run) {
    for (int i = 0; i < 2; i++) {
        run.handle("memory_open_ipc", [&](emm_memory **made) {
            return emm_memory_open_ipc(run.context(), &run.offer().handle(), made);
        });
    }
    run.free_all();
}

} // namespace

const std::vector<Workload> &workloads() {
    static const std::vector<Workload> all = [] {
        std::vector<Workload> made;
        const auto add = [&](const char *name, void (*run)(Run &)) -> Workload & {
            made.emplace_back();
            made.back().name = name;
            made.back().run = run;
            return made.back();
        };
        add("device", device);
        add("host", host);
        add("pin", pin);
        add("managed", managed);
        add("handles", handles);
        add("growth", growth);
        add("streams", streams);
        add("trim", trim);
        add("options", change_options);
        add("remap", remap);
        add("reset", reset);
        add("pools", pools);
        add("places", places).counts_all = true;
        add("capture", capture);
        add("deferred", deferred);
        add("peers", peers).optional = true;
        add("asked", asked).starts_threads = true;
        add("pause", pause).optional = true;
        Workload &sharing = add("share", share);
        sharing.optional = sharing.starts_threads = true;
        Workload &opening = add("open", open);
        opening.optional = opening.needs_offer = true;
        Workload &copying = add("open a copy", open);
        copying.optional = copying.needs_offer = true;
        copying.environment = {{"EMM_IPC_STAGED", "1"}};
        copying.device = 1;
        add("thread", thread);
        add("retire", retire).leaves = Leaves::no_context;
        const auto add_start = [&](const char *name, void (*run)(Run &)) -> Workload & {
            Workload &made = add(name, run);
            made.leaves = Leaves::no_process;
            made.from_nothing = made.starts_threads = true;
            return made;
        };
        add_start("load", load);
        Workload &logging = add_start("logged", logged);
        logging.again = shut_down_again;
        logging.environment = {{"EMM_EVENT_LOG", "%d/events-%p.csv"},
                               {"EMM_LOG", "warn:%d/text-%p"}};
        add_start("limited", limited).environment = {{"EMM_LIMIT", "64MiB"}};
        add_start("a shared limit", limited).environment = {
            {"EMM_LIMIT", "64MiB"}, {"EMM_LIMIT_SHARED", "faults"}, {"EMM_LIMIT_FOLDER", "%d"}};
        add_start("reported", reported).environment = {{"EMM_TRACK", "stack"},
                                                       {"EMM_OOM_REPORT", "page:%d"}};
        add_start("plugins", plugins);
        Workload &serving = add_start("serve", serve);
        serving.optional = true;
        serving.prepare = start_importer;
        for (Workload &each : made) {
            each.only_host = each.from_nothing && each.run != load;
        }
        Workload &ending = add("shutdown", shut_down);
        ending.leaves = Leaves::no_process;
        ending.again = shut_down_again;
        return made;
    }();
    return all;
}

} // namespace faults
