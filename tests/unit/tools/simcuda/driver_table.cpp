#include "driver_table.h"

#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>

namespace {

std::string path() {
    const char *wanted = std::getenv("EMM_TEST_DRIVER");
    if (!wanted || !*wanted) {
        return TEST_SIMCUDA;
    }
    return wanted == std::string("real") ? "libcuda.so.1" : wanted;
}

CUresult (*get_proc_address)(const char *, void **, int, cuuint64_t, int *) = nullptr;

emm_function find(const char *name, int32_t version) {
    void *found = nullptr;
    int answer = 0;
    get_proc_address(name, &found, version, 0, &answer);
    return reinterpret_cast<emm_function>(found);
}

CudaDriver open() {
    void *library = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        throw std::runtime_error(dlerror());
    }
    get_proc_address =
        reinterpret_cast<decltype(get_proc_address)>(dlsym(library, "cuGetProcAddress_v2"));
    CudaDriver driver(&find);
    driver.get_proc_address = get_proc_address;
#define SIMCUDA_FIND(member)                                                                       \
    driver.member = reinterpret_cast<decltype(driver.member)>(dlsym(library, "simcuda_" #member));
    SIMCUDA_FIND(get_counters)
    SIMCUDA_FIND(call_count)
    SIMCUDA_FIND(last_race)
    SIMCUDA_FIND(configure)
    SIMCUDA_FIND(fail)
    SIMCUDA_FIND(launch)
    SIMCUDA_FIND(launch_programmatic)
    SIMCUDA_FIND(reset_peaks)
    SIMCUDA_FIND(work)
#undef SIMCUDA_FIND
    return driver;
}

} // namespace

const CudaDriver &cu() {
    static const CudaDriver driver = open();
    return driver;
}
