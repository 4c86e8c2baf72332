// exits_in_handler MICROSECONDS [WORD...]: allocates and frees until a signal handler calls exit().
// `counted`: the driver itself gives memory, too. `thread`: a second thread does all this, with its
// own stream.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

namespace {

void require(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "%s: %d\n", what, int(result));
        std::_Exit(1);
    }
}

void end_program(int) {
    std::exit(0);
}

CUmemGenericAllocationHandle take_physical() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemGenericAllocationHandle handle = 0;
    require(cuMemCreate(&handle, 2 << 20, &properties, 0), "cuMemCreate");
    return handle;
}

void work(CUcontext context, CUstream stream, long microseconds, bool counted) {
    require(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (counted) {
        take_physical();
    }
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
    const itimerval time = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &time, nullptr);
    for (;;) {
        CUdeviceptr block = 0, ordered = 0;
        require(cuMemAlloc(&block, 3 << 20), "cuMemAlloc");
        require(cuMemAllocAsync(&ordered, 1000, stream), "cuMemAllocAsync");
        require(cuMemFreeAsync(ordered, stream), "cuMemFreeAsync");
        require(cuMemFree(block), "cuMemFree");
        if (counted) {
            require(cuMemRelease(take_physical()), "cuMemRelease");
        }
    }
}

} // namespace

int main(int count, char **words) {
    bool counted = false, in_thread = false;
    for (int i = 2; i < count; i++) {
        counted |= std::strcmp(words[i], "counted") == 0;
        in_thread |= std::strcmp(words[i], "thread") == 0;
    }
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    require(cuInit(0), "cuInit");
    require(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    require(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    require(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    std::signal(SIGALRM, &end_program);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr); // until the work begins
    const long microseconds = std::atol(words[1]);
    if (in_thread) {
        std::thread(&work, context, CU_STREAM_PER_THREAD, microseconds, counted).join();
    }
    work(context, stream, microseconds, counted);
}
