// The simulated driver's own entries, with which a test makes its calls fail. They come from the
// library that EMM_DRIVER names: emm opens the same one.
#pragma once

#include "sized.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <simcuda.h>

struct Simulator {
    decltype(&simcuda_fail) fail = nullptr;
    decltype(&simcuda_spare) spare = nullptr;
    decltype(&simcuda_fault_count) fault_count = nullptr;
    decltype(&simcuda_last_fault) last_fault = nullptr;
    decltype(&simcuda_get_counters) get_counters = nullptr;
    decltype(&simcuda_is_inside) is_inside = nullptr;
    int (*cuInit)(unsigned) = nullptr;

    // Ends the process if there is no such driver.
    void open() {
        const char *const path = std::getenv("EMM_DRIVER");
        void *const library = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);
        find(library, "simcuda_fail", fail);
        find(library, "simcuda_spare", spare);
        find(library, "simcuda_fault_count", fault_count);
        find(library, "simcuda_last_fault", last_fault);
        find(library, "simcuda_get_counters", get_counters);
        find(library, "simcuda_is_inside", is_inside);
        find(library, "cuInit", cuInit);
    }

    simcuda_counters counters() const {
        auto found = sized<simcuda_counters>();
        get_counters(&found);
        return found;
    }

    // Whether its own code calls: a function of the C library that emm may call, too.
    bool calls(const void *caller) const {
        Dl_info of_caller = {}, own = {};
        return is_inside() ||
               (dladdr(caller, &of_caller) && dladdr(reinterpret_cast<void *>(is_inside), &own) &&
                of_caller.dli_fbase == own.dli_fbase);
    }

private:
    template <class Function>
    static void find(void *library, const char *name, Function &ret_function) {
        ret_function = reinterpret_cast<Function>(library ? dlsym(library, name) : nullptr);
        if (!ret_function) {
            std::fprintf(stderr, "EMM_DRIVER: expected the simulated driver, found none with %s\n",
                         name);
            std::_Exit(2);
        }
    }
};
