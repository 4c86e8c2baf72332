#pragma once

#include "capture.h"
#include "clock.h"
#include "context.h"
#include "device.h"
#include "entries.h"
#include "graph.h"
#include "handles.h"
#include "memory.h"
#include "multicast.h"
#include "options.h"
#include "pool.h"
#include "schedule.h"
#include "stream.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace simcuda {

enum class Stage { fresh, ready, forked, gone };

struct Totals {
    uint64_t now = 0, peak = 0, blocks = 0;
    void add(uint64_t bytes) {
        now += bytes;
        ++blocks;
        peak = now > peak ? now : peak;
    }
    void remove(uint64_t bytes) {
        now -= bytes;
        --blocks;
    }
};

// The whole state of the driver, guarded by one mutex.
struct Simulator {
    std::mutex mutex;
    std::atomic<Stage> stage{Stage::fresh};
    std::atomic<int> version{0};
    std::atomic<bool> kernels{false}; // options.kernels, for calls without a lock

    Options options;
    std::string bad_options; // why cuInit will refuse
    std::string no_room;     // the reason of its refusal
    Faults faults;
    std::atomic<bool> faulty{false};
    CUresult sticky = CUDA_SUCCESS;

    Schedule work{mutex};
    Host host;
    uint64_t races = 0;
    std::string last_race;

    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<Device> host_pages; // host memory of cuMemCreate
    Handles<Context, CUcontext> contexts;
    Handles<Stream, CUstream> streams;
    Handles<Event, CUevent> events;
    Handles<Graph, CUgraph> graphs;
    Handles<Node, CUgraphNode> nodes;
    Handles<Executable, CUgraphExec> executables;
    Handles<UserObject, CUuserObject> user_objects;
    Handles<Module, CUmodule> modules; // of libraries too
    Handles<Function, CUfunction> functions;
    std::vector<std::shared_ptr<Capture>> captures;
    Handles<Physical, CUmemGenericAllocationHandle> physicals;
    Handles<Multicast, CUmemGenericAllocationHandle> multicasts;
    std::map<uint64_t, Physical *> exported;      // this process's own, by id
    std::set<Physical *> left_to_descriptors;     // of those: no handle, no mapping
    std::map<CUdeviceptr, uint64_t> reservations; // sizes of address ranges
    Handles<Pool, CUmemoryPool> pool_handles;
    std::vector<std::unique_ptr<Pool>> pools;
    std::vector<std::unique_ptr<Store>> foreign; // memory of other processes' devices
    Handles<Array, CUarray> plain_arrays;
    Handles<Array, CUmipmappedArray> mipmapped_arrays;
    Regions regions;
    Store host_memory; // bytes at their own addresses
    Totals device_totals, host_totals;
    uint64_t context_ids = 0, stream_ids = 0, buffer_ids = 0, capture_ids = 0; // never twice
    uint64_t tickets = 0;                                                      // likewise

    std::vector<std::function<void()>> callbacks; // the program's own code, to run unlocked

    // Called at the end of every call: runs the work and the callbacks that are due.
    void do_due_work();
};

Simulator &sim();
int driver_version();

// Applies options over the present ones. cuInit reports their errors.
void apply_options(Simulator &simulator, const char *text);
void read_environment(Simulator &simulator);

} // namespace simcuda
