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

template <typename Function>
void find(const CudaDriver &driver, const char *name, int version, Function &ret_function) {
    void *found = nullptr;
    int answer = 0;
    driver.get_proc_address(name, &found, version, 0, &answer);
    ret_function = reinterpret_cast<Function>(found);
}

CudaDriver open() {
    void *library = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        throw std::runtime_error(dlerror());
    }
    CudaDriver driver;
    driver.get_proc_address =
        reinterpret_cast<decltype(driver.get_proc_address)>(dlsym(library, "cuGetProcAddress_v2"));
    // A name in quotes is not expanded, so it is the one without a version.
#define TESTED_FIND(name) find(driver, #name, 12000, driver.name);
    TESTED_ENTRIES(TESTED_FIND)
#undef TESTED_FIND
    find(driver, "cuCtxCreate", 3020, driver.create_context);
    find(driver, "cuCtxRecordEvent", 12050, driver.record_context);
#define SIMCUDA_FIND(member)                                                                       \
    driver.member = reinterpret_cast<decltype(driver.member)>(dlsym(library, "simcuda_" #member));
    SIMCUDA_FIND(get_counters)
    SIMCUDA_FIND(call_count)
    SIMCUDA_FIND(last_race)
    SIMCUDA_FIND(configure)
    SIMCUDA_FIND(fail)
    SIMCUDA_FIND(launch)
    SIMCUDA_FIND(reset_peaks)
#undef SIMCUDA_FIND
    return driver;
}

} // namespace

const CudaDriver &cu() {
    static const CudaDriver driver = open();
    return driver;
}
