#include "simulator.h"

#include "call.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <utility>

namespace simcuda {

// Never destroyed: calls may come while the process ends.
Simulator &sim() {
    static Simulator *the = [] {
        auto *simulator = new Simulator;
        read_environment(*simulator);
        return simulator;
    }();
    return *the;
}

int driver_version() {
    return sim().version.load(std::memory_order_relaxed);
}

void apply_options(Simulator &simulator, const char *text) {
    Options options = simulator.options;
    simulator.bad_options = read_options(text, options);
    Faults faults;
    for (const std::string &fault : options.faults) {
        const std::string wrong = faults.arm(fault);
        if (!wrong.empty() && simulator.bad_options.empty()) {
            simulator.bad_options = "EMM_SIM: " + wrong;
        }
    }
    if (simulator.bad_options.empty()) {
        simulator.options = options;
        simulator.faults = faults;
        simulator.faulty.store(faults.armed());
        simulator.version.store(options.driver);
        simulator.kernels.store(options.kernels);
    }
}

void read_environment(Simulator &simulator) {
    simulator.version.store(simulator.options.driver);
    apply_options(simulator, secure_getenv("EMM_SIM"));
}

void Simulator::do_due_work() {
    work.advance();
    while (!callbacks.empty()) {
        const std::vector<std::function<void()>> due = std::exchange(callbacks, {});
        mutex.unlock();
        const bool outer = std::exchange(this_thread.in_callback, true);
        for (const auto &callback : due) {
            callback();
        }
        this_thread.in_callback = outer;
        mutex.lock();
    }
}

namespace {

// A forked child has no driver, as with the real driver, and finds out before it takes any lock.
void in_child() {
    sim().stage.store(Stage::forked);
}

void at_exit() {
    sim().stage.store(Stage::gone);
}

bool open_handles(Simulator &simulator) {
    return simulator.contexts.open() && simulator.streams.open() && simulator.events.open() &&
           simulator.graphs.open() && simulator.nodes.open() && simulator.executables.open() &&
           simulator.user_objects.open() && simulator.physicals.open() &&
           simulator.multicasts.open() && simulator.pool_handles.open() &&
           simulator.plain_arrays.open() && simulator.mipmapped_arrays.open() &&
           (!simulator.options.kernels || (simulator.modules.open() && simulator.functions.open()));
}

bool open_devices(Simulator &simulator) {
    for (int ordinal = 0; ordinal < simulator.options.devices; ++ordinal) {
        auto device = std::make_unique<Device>();
        device->ordinal = ordinal;
        if (!device->open(simulator.options.memory)) {
            return false;
        }
        device->primary_handle = simulator.contexts.reserve();
        device->default_pool = device->current_pool = make_pool(*device, 0);
        device->default_pool->is_default = true;
        simulator.devices.push_back(std::move(device));
    }
    return true;
}

// libemm asks for the text (simcuda_complaint) and reports it in its own error.
void complain(const std::string &text) {
    if (!dlopen("libemm.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
        fprintf(stderr, "simcuda: %s\n", text.c_str());
    }
}

CUresult start(Simulator &simulator) {
    if (!simulator.bad_options.empty()) {
        complain(simulator.bad_options);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!open_handles(simulator)) {
        simulator.no_room =
            std::string("no room for handles, ") + std::strerror(errno) +
            ": they take 3 GiB of addresses, of which few are ever used (ulimit -v)";
        complain(simulator.no_room);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!open_devices(simulator)) {
        simulator.no_room = std::string("no room for a device's memory, ") + std::strerror(errno) +
                            ": it takes twice as many addresses, and a file as large; EMM_SIM=" +
                            "memory=16GiB asks for less, as it has to be under valgrind";
        complain(simulator.no_room);
        simulator.devices.clear();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    simulator.work.configure(simulator.options);
    pthread_atfork(nullptr, nullptr, in_child);
    if (simulator.options.late) {
        atexit(at_exit);
    }
    simulator.stage.store(Stage::ready, std::memory_order_release);
    return CUDA_SUCCESS;
}

} // namespace

CUresult api::init(unsigned int flags) {
    Simulator &simulator = sim();
    switch (simulator.stage.load(std::memory_order_acquire)) {
    case Stage::forked:
        return CUDA_ERROR_NOT_INITIALIZED;
    case Stage::gone:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        break;
    }
    const std::lock_guard lock(simulator.mutex);
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult injected = this_thread.spared ? CUDA_SUCCESS : simulator.faults.next("cuInit");
    if (injected != CUDA_SUCCESS) {
        return injected;
    }
    return simulator.stage.load() == Stage::ready ? CUDA_SUCCESS : start(simulator);
}

CUresult api::driver_get_version(int *version) {
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = driver_version();
    return CUDA_SUCCESS;
}

} // namespace simcuda
