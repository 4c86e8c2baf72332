#include "release.h"

#include "caller.h"
#include "server.h"

#include <dlfcn.h>

namespace emm::run {
namespace {

// The longest wait in all: for the interpreter's lock, and for the work of the caches.
constexpr std::chrono::seconds longest_wait{5};

// The longest wait while the interpreter ends the process: its caches go anyway.
constexpr std::chrono::seconds longest_wait_at_end{10};

// This thread is asking caches, so no cache can help it.
[[gnu::tls_model("initial-exec")]] thread_local bool is_asking = false;

void *find_in_process(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

// No cache can give back more memory than the device has.
bool can_be_met(emm_context *context, size_t bytes) {
    const auto kept = server().contexts.keep();
    size_t free = 0, total = 0;
    return emm_get_memory_info(context, &free, &total) < 0 || bytes <= total;
}

} // namespace

Release::Release(const Driver &driver, Streams &streams, Caches caches)
    : driver_(driver), streams_(streams), caches_(caches) {
    if (caches_ != no_caches && find_python(&find_in_process, python_)) {
        const OuterLock outer = {python_.PyGILState_Ensure, python_.PyGILState_Release};
        thread_ = std::make_unique<HelperThread>(outer, longest_wait);
    }
}

Caches Release::caches_to_ask(emm_context *context, size_t bytes, Memory memory) const {
    return thread_ && !is_asking && !Outside::is_own_thread() && !streams_.any_capture() &&
                   python_.is_free() && (memory == Memory::pinned || can_be_met(context, bytes))
               ? caches_ & ~cache_of_caller()
               : no_caches;
}

bool Release::ask(emm_context *context, size_t bytes, Memory memory) {
    const Caches caches = caches_to_ask(context, bytes, memory);
    if (caches == no_caches) {
        return false;
    }
    const CUcontext cuda = cuda_of(context);
    return thread_->run([=, this] { work(cuda, caches, memory); });
}

// Runs with the interpreter's lock, on the helper thread, which does nothing afterwards. CUDA's
// calls go to the context that lacks memory, and do not invalidate a capture that begins meanwhile.
void Release::work(CUcontext context, Caches caches, Memory memory) {
    is_asking = true;
    knows_end_ = knows_end_ || python_.call_at_end(&at_end);
    if (!knows_end_ || streams_.any_capture()) {
        return;
    }
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult relaxed = cuda::exchange_capture_mode(driver_, mode);
    const Current current(driver_, context);
    if (relaxed == CUDA_SUCCESS && current.result() == CUDA_SUCCESS) {
        release_caches(python_, caches, memory);
    }
}

// The interpreter ends threads that need its lock later, wherever they are.
PyObject *Release::at_end(PyObject *, PyObject *) {
    const Release &release = server().release;
    if (!Turn::is_forked_child()) {
        void *const state = release.python_.PyEval_SaveThread();
        release.thread_->close(longest_wait_at_end);
        release.python_.PyEval_RestoreThread(state);
    }
    return release.python_.Py_BuildValue(""); // None
}

} // namespace emm::run
