#include "driver.h"

#include <cstdio>

namespace emm::pool {

Driver::Driver(const emm_host &host) : Entries(host.driver) {
    if (missing()) {
        char text[128];
        snprintf(text, sizeof text, "pool: the driver has no %s, which CUDA 12.0 and later have",
                 missing());
        throw PluginError(EMM_E_NOT_SUPPORTED, 0, text);
    }
}

bool Driver::is_alive(CUcontext context, uint64_t id) const {
    unsigned long long found = 0;
    const CUresult result = cuCtxGetId(context, &found);
    return result == CUDA_SUCCESS ? found == id : !is_gone(result);
}

bool is_gone(CUresult result) {
    return result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_INVALID_CONTEXT;
}

} // namespace emm::pool
