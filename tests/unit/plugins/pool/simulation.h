// The pool's plugin on the simulated driver, without a host between: a small stand-in answers the
// plugin's calls. One simulated driver serves a whole test program; each test has a context of its
// own.
#pragma once

#include "catch.h"
#include "parts/sized.h"

#include <cuda.h>
#include <emm/plugin.h>
#include <simcuda.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace pool_test {

// The driver's entries that the tests themselves call.
struct Cuda {
    Cuda();
    template <class Function> void find(Function &function, const char *name, int version = 12000);

    decltype(&::cuInit) cuInit;
    decltype(&::cuDevicePrimaryCtxRetain) cuDevicePrimaryCtxRetain;
    CUresult(CUDAAPI *cuCtxCreate)(CUcontext *, unsigned, CUdevice);
    decltype(&::cuCtxDestroy) cuCtxDestroy;
    decltype(&::cuCtxGetId) cuCtxGetId;
    decltype(&::cuCtxPushCurrent) cuCtxPushCurrent;
    decltype(&::cuCtxPopCurrent) cuCtxPopCurrent;
    decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
    decltype(&::cuCtxSynchronize) cuCtxSynchronize;
    decltype(&::cuCtxEnablePeerAccess) cuCtxEnablePeerAccess;
    decltype(&::cuCtxDisablePeerAccess) cuCtxDisablePeerAccess;
    decltype(&::cuStreamCreate) cuStreamCreate;
    decltype(&::cuStreamDestroy) cuStreamDestroy;
    decltype(&::cuStreamSynchronize) cuStreamSynchronize;
    decltype(&::cuStreamWaitEvent) cuStreamWaitEvent;
    decltype(&::cuEventCreate) cuEventCreate;
    decltype(&::cuEventDestroy) cuEventDestroy;
    decltype(&::cuEventRecord) cuEventRecord;
    decltype(&::cuMemsetD8Async) cuMemsetD8Async;
    decltype(&::cuMemAlloc) cuMemAlloc;
    decltype(&::cuMemFree) cuMemFree;
    decltype(&::cuStreamBeginCapture) cuStreamBeginCapture;
    decltype(&::cuStreamEndCapture) cuStreamEndCapture;
    CUresult(CUDAAPI *cuGraphInstantiate)(CUgraphExec *, CUgraph, unsigned long long);
    decltype(&::cuGraphLaunch) cuGraphLaunch;
    decltype(&::cuGraphDestroy) cuGraphDestroy;
    decltype(&::cuGraphExecDestroy) cuGraphExecDestroy;
    decltype(&::simcuda_get_counters) get_counters;
    decltype(&::simcuda_call_count) call_count;
    decltype(&::simcuda_fail) fail;
    decltype(&::simcuda_launch) launch;
    decltype(&::simcuda_last_race) last_race;
};

const Cuda &cuda();

uint64_t driver_calls(); // so far, of those for events and memory

// The failures that the stand-in host heard.
struct Heard {
    emm_status code;
    int32_t driver_result;
    std::string text;
};
Heard last_failure();
const emm_host &host();

// A hook in each of the plugin's calls of cuMemAlloc, cuMemCreate and cuGraphRetainUserObject,
// before the driver's; NULL: none.
extern std::atomic<void (*)()> before_mem_alloc, before_mem_create, before_graph_retain;
// The same for calls that return memory: cuMemFree, cuMemFreeHost and cuMemUnmap.
extern std::atomic<void (*)()> before_giving_back;
// The same for cuEventSynchronize, and for cuMemSetAccess.
extern std::atomic<void (*)()> before_waiting, before_set_access;

// The most addresses that the driver reserves in one call.
extern std::atomic<size_t> most_addresses;

// Whether the plugin's waits of one stream for another have no effect: a driver without order.
extern std::atomic<bool> loses_waits;

// Whether work is complete only after the program has waited for it, whatever the number of
// queries.
bool work_takes_ages();

// The plugin under test, which EMM_TEST_POOL in the environment names.
const emm_plugin &pool();

// Options are written as in a spec: "max=8MiB,initial=2MiB". create makes a manager for the
// context, which is current.
emm_status create(const std::string &options, CUcontext context, emm_manager *&ret_manager,
                  const emm_host &its_host = host());
emm_status check_options(const std::string &options);

// A context, a manager for it with these options, and common steps of the tests. Its end checks
// that nothing is left: no race, no byte, no event.
class Simulation {
public:
    explicit Simulation(const std::string &options = "", const emm_host &its_host = host());
    ~Simulation();
    Simulation(const Simulation &) = delete;

    emm_status try_alloc(size_t size, CUstream stream, CUdeviceptr &ret_ptr);
    CUdeviceptr alloc(size_t size, CUstream stream); // must succeed
    emm_status free(CUdeviceptr ptr, CUstream stream, size_t size = 0);
    CUstream stream(bool registered = true);
    void destroy(CUstream stream); // retires it if needed
    void notice(CUstream stream, uint32_t what);
    void touch(CUdeviceptr ptr, size_t size, CUstream stream); // a write, enqueued
    void order(CUstream before, CUstream after);               // `after` waits for `before`
    emm_stats stats();
    size_t trim(size_t keep = 0);
    void close();       // destroys the manager
    void end_context(); // before the manager
    uint64_t held() const { return device_bytes() - base_bytes_; }

    emm_manager *manager = nullptr;
    CUcontext context = nullptr;

    static simcuda_counters counters();
    static uint64_t device_bytes() { return counters().device_bytes; }
    static uint64_t host_bytes() { return counters().host_bytes; }
    static uint64_t races();
    static void forgive_races(); // they were meant to be
    // Events, streams, graphs and address ranges, of all contexts.
    static uint64_t objects() { return counters().objects; }

private:
    std::vector<CUstream> streams_;
    std::vector<CUstream> registered_;
    uint64_t base_bytes_ = 0;
};

void synchronize(Simulation &sim); // waits for all work of its context

constexpr size_t KiB = 1024, MiB = 1024 * KiB;
const CUstream legacy = nullptr;
const CUstream per_thread = reinterpret_cast<CUstream>(uintptr_t(2));
const CUstream unordered = EMM_STREAM_UNORDERED;

} // namespace pool_test
