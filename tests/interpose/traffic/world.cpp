#include "world.h"

#include "../../parts/threads.h"
#include "worker.h"

#include <algorithm>

CUresult find_simulator_entry(const char *name, void **ret_entry) {
    CUdriverProcAddressQueryResult found;
    *ret_entry = nullptr;
    return cu.cuGetProcAddress(name, ret_entry, 12000, 0, &found);
}

Machine find_machine() {
    Machine machine;
    void *entry = nullptr;
    check(cu.cuDeviceGetCount(&machine.devices), "cuDeviceGetCount");
    machine.devices = std::min(machine.devices, 3);
    machine.is_simulated =
        find_simulator_entry("simcuda_get_counters", &entry) == CUDA_SUCCESS && entry;
    return machine;
}

namespace {

// Kernels and fills of one device reach memory of another's default pool.
void open_pool(CUdevice device, CUdevice peer) {
    CUmemoryPool pool = nullptr;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = peer;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
    check(cu.cuMemPoolSetAccess(pool, &access, 1), "cuMemPoolSetAccess");
}

} // namespace

World::World(const Settings &its_settings, const Machine &its_machine, size_t its_seed)
    : settings(its_settings), machine(its_machine), seed(its_seed) {
    places[0] = {0, true, nullptr};
    places[1] = {0, false, nullptr};
    places[2] = machine.devices > 1 ? Place{1, true, nullptr} : Place{0, false, nullptr};
    for (Place &place : places) {
        check(place.primary ? cu.cuDevicePrimaryCtxRetain(&place.context, place.device)
                            : cu.cuCtxCreate_v2(&place.context, 0, place.device),
              "a context");
    }
    if (settings.abroad && places[2].device != places[0].device) {
        open_pool(places[0].device, places[2].device);
        open_pool(places[2].device, places[0].device);
    }
}

void World::run() {
    run_threads(settings.threads, settings.steps ? std::nullopt : std::optional(settings.seconds),
                stop, [this](size_t number) { run_thread(number); });
    if (!failure_.empty()) {
        throw std::runtime_error(failure_);
    }
    free_handed_over();
    end_contexts();
}

void World::run_thread(size_t number) {
    try {
        Worker worker(*this, seed * 1000 + number);
        worker.run(settings.steps ? settings.steps / settings.threads : size_t(-1));
        worker.finish();
    } catch (const std::exception &error) {
        stop = true;
        const std::lock_guard lock(mutex_);
        if (failure_.empty()) {
            failure_ = "thread " + std::to_string(number) + ": " + error.what();
            std::fprintf(stderr, "%s\n",
                         failure_.c_str()); // CUDA may end the process with the thread
        }
    }
}

// Memory that was left to other threads and never taken.
void World::free_handed_over() {
    while (const auto handed = take()) {
        const Block &block = handed->block;
        check(cu.cuCtxSetCurrent(places[block.place].context), "cuCtxSetCurrent");
        check(cu.cuStreamWaitEvent(nullptr, handed->event, 0), "cuStreamWaitEvent");
        check(cu.cuEventDestroy(handed->event), "cuEventDestroy");
        expect_ends(cu, Ends(block.ptr, block.size), block.pattern, nullptr);
        check(cu.cuMemFree(block.ptr), "cuMemFree");
    }
}

// A primary context ends by a reset or by its last release, with what the threads have left there.
void World::end_contexts() {
    for (const Place &place : places) {
        check(cu.cuCtxSetCurrent(nullptr), "cuCtxSetCurrent");
        if (!place.primary) {
            check(cu.cuCtxDestroy(place.context), "cuCtxDestroy");
            continue;
        }
        if (seed % 2 == 0) {
            check(cu.cuDevicePrimaryCtxReset(place.device), "cuDevicePrimaryCtxReset");
        }
        check(cu.cuDevicePrimaryCtxRelease(place.device), "cuDevicePrimaryCtxRelease");
    }
}

// 0 is no pattern: new memory may contain it.
unsigned World::next_pattern() {
    const unsigned next = last_pattern_.fetch_add(1, std::memory_order_relaxed) + 1;
    return next + (next == 0);
}

void World::put(const HandOver &handed) {
    const std::lock_guard lock(mutex_);
    handed_over_.push_back(handed);
}

std::optional<HandOver> World::take() {
    const std::lock_guard lock(mutex_);
    if (handed_over_.empty()) {
        return std::nullopt;
    }
    const HandOver handed = handed_over_.front();
    handed_over_.pop_front();
    return handed;
}
