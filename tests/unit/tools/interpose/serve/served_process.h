// A process that emm serves, by entries of the simulated driver: one for all tests, because one
// plugin serves a process to its end.
#pragma once

#include "catch.h"
#include "proc_address.h"

#include <cstdlib>
#include <cuda.h>
#include <dlfcn.h>

extern "C" bool emm_run_serve(const emm::run::Entries *driver, emm::run::Entries *ret_serving,
                              const emm::run::HoldCalls *hold, char *ret_problem, size_t size);

namespace emm::run {

// Stand in for entries that the simulated driver lacks, or for which it needs another process. Each
// file with tests has its own.
void stand_in_for_addresses(Entries &driver);
void stand_in_for_graphs(Entries &driver);

inline Entries find_driver() {
    void *const library = dlopen(std::getenv("EMM_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    Entries found = {};
    for (int i = 0; library && i < served_count; i++) {
        found.at[i] = reinterpret_cast<Entry>(dlsym(library, symbol_of(Served(i))));
    }
    stand_in_for_addresses(found);
    stand_in_for_graphs(found);
    return found;
}

class Process {
public:
    Process() {
        setenv("EMM_PLUGIN", "passthrough", 1);
        serves_ = driver_.at[served_cuInit] &&
                  driver<CUresult (*)(unsigned)>(served_cuInit)(0) == CUDA_SUCCESS &&
                  emm_run_serve(&driver_, &serving_, nullptr, problem_, sizeof problem_);
    }

    bool serves() const { return serves_; }
    const char *problem() const { return problem_; }
    template <class Function> Function driver(Served entry) const {
        return reinterpret_cast<Function>(driver_.at[entry]);
    }
    template <class Function> Function emm(Served entry) const {
        return reinterpret_cast<Function>(serving_.at[entry]);
    }

private:
    const Entries driver_ = find_driver();
    Entries serving_ = {};
    char problem_[256] = "";
    bool serves_ = false;
};

inline const Process &process() {
    static const Process only;
    return only;
}

// The primary context, current as long as this object lives. With its end all memory is the
// driver's.
struct Context {
    Context() {
        CUcontext context = nullptr;
        REQUIRE(process().emm<CUresult (*)(CUcontext *, CUdevice)>(served_cuDevicePrimaryCtxRetain)(
                    &context, 0) == CUDA_SUCCESS);
        void *const library = dlopen(std::getenv("EMM_DRIVER"), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(library, "cuCtxSetCurrent"))(
                    context) == CUDA_SUCCESS);
    }
    ~Context() { process().emm<CUresult (*)(CUdevice)>(served_cuDevicePrimaryCtxRelease_v2)(0); }
};

} // namespace emm::run
