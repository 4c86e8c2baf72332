#include "own_code.h"

#include "driver.h"

#include <emm/emm.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

namespace own_code {
namespace {

constexpr size_t block_bytes = 4 << 20;

void require(int result, const char *what) {
    if (result != 0) {
        std::printf("%s: %d\n", what, result);
        std::fflush(stdout);
        std::_Exit(5);
    }
}
#define DEMAND(call) require(int(call), #call)

template <class Function> Function *entry_of_emm(const char *name) {
    void *const libemm = dlopen("libemm.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *const found = libemm ? dlsym(libemm, name) : nullptr;
    require(found ? 0 : 1, name);
    return reinterpret_cast<Function *>(found);
}
#define EMM(function) entry_of_emm<decltype(function)>(#function)

emm_context *pool(CUcontext context) {
    static emm_context *const made = [&] {
        emm_context *own = nullptr, *named = nullptr;
        DEMAND(EMM(emm_context_from)(context, &own));
        DEMAND(EMM(emm_context_named)(own, "own", nullptr, &named));
        return named;
    }();
    return made;
}

CUdeviceptr block() {
    static const CUdeviceptr made = [] {
        CUdeviceptr address = 0;
        DEMAND(cu.cuMemAlloc(&address, block_bytes));
        return address;
    }();
    return made;
}

std::atomic<int> calls{0}; // of the finalizer and of the log callback

// A thread that calls CUDA again and again.
std::atomic<long> rounds{0};
std::atomic<bool> has_ended{false};
thread_local bool is_caller = false;

void start_calling(CUcontext context) {
    std::thread([context, address = block()] {
        is_caller = true;
        DEMAND(cu.cuCtxSetCurrent(context));
        while (cu.cuMemsetD8Async(address, 1, 1, nullptr) != CUDA_ERROR_DEINITIALIZED) {
            rounds++;
            usleep(100);
        }
        has_ended = true; // as the process does
    }).detach();
}

// While its calls are held, that thread ends one round at most.
void wait_for_calls() {
    for (const long before = rounds; !is_caller && !has_ended && rounds < before + 2;) {
        usleep(100);
    }
    calls++;
}

// --- a resume that finds no memory ---------------------------------------------------------------

std::atomic<bool> presses{false}, has_memory{false};
thread_local bool is_resuming = false;
std::thread resuming;
emm_status resumed = EMM_OK;

size_t press(emm_context *, size_t, void *) {
    while (is_resuming && !has_memory) {
        cu.cuMemsetD8Async(block(), 1, 1, nullptr);
        presses = true;
    }
    return is_resuming ? 1 : 0;
}

// The resume is within the pressure callback when this ends.
void begin_resume(CUcontext context) {
    emm_deviceptr memory = 0;
    block();
    DEMAND(EMM(emm_memalloc)(pool(context), block_bytes, EMM_STREAM_LEGACY, &memory));
    DEMAND(EMM(emm_context_pause)(pool(context), EMM_PAUSE_KEEP, nullptr));
    DEMAND(EMM(emm_set_pressure_callback)(&press, nullptr));
    DEMAND(entry_of<int(const char *)>("simcuda_fail")("cuMemCreate@1+"));
    resuming = std::thread([context] {
        DEMAND(cu.cuCtxSetCurrent(context));
        is_resuming = true;
        resumed = EMM(emm_context_resume)(pool(context), 0);
    });
    while (!presses) {
        usleep(1000);
    }
}

emm_status end_resume() {
    entry_of<int(const char *)>("simcuda_fail")("");
    has_memory = true;
    resuming.join();
    return resumed;
}

// --- a finalizer and a log callback --------------------------------------------------------------

// The driver fails to unpin the range, so the finalizer waits for the next pending frees.
void make_finalizer_pending(CUcontext context) {
    static char bytes[1 << 16];
    emm_memory *pinned = nullptr;
    DEMAND(EMM(emm_memory_pin)(
        pool(context), bytes, sizeof bytes, 0, bytes, [](void *) { wait_for_calls(); }, &pinned));
    entry_of<int(const char *)>("simcuda_fail")("cuMemHostUnregister@1");
    EMM(emm_memory_release)(pinned);
    start_calling(context);
}

void set_log_callback(CUcontext context) {
    DEMAND(EMM(emm_set_log_callback)(
        EMM_LOG_DEBUG, [](int32_t, const char *, void *) { wait_for_calls(); }, nullptr));
    start_calling(context);
}

} // namespace

std::string obey(CUcontext context, const std::string &word) {
    if (word == "own-resume") {
        begin_resume(context);
    } else if (word == "own-resumed") {
        return std::to_string(end_resume());
    } else if (word == "own-finalizer") {
        make_finalizer_pending(context);
    } else if (word == "own-log") {
        set_log_callback(context);
    } else if (word == "own-load") {
        DEMAND(dlopen(std::getenv("EMM_TEST_LIBRARY"), RTLD_NOW) ? 0 : 1);
    } else if (word == "own-calls") {
        return std::to_string(calls);
    } else if (word == "own-trim") {
        return std::to_string(EMM(emm_trim)(pool(context), 0, nullptr));
    } else if (word == "own-retire") {
        return std::to_string(EMM(emm_context_retire)(pool(context)));
    }
    return word;
}

} // namespace own_code
