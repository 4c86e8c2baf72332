#include "async/pool.h"

#include <unistd.h>

namespace emm::async {
namespace {

constexpr int limited_pools_version = 12020;

void limit(const Driver &driver, CUmemPoolProps &properties, uint64_t max_bytes) {
    int version = 0;
    driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
#if CUDA_VERSION >= 12020
    properties.maxSize = max_bytes;
    const bool known = true;
#else
    const bool known = false;
    (void)properties;
    (void)max_bytes;
#endif
    if (!known || version < limited_pools_version) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "option max needs a driver, and a cuda.h at build time, of CUDA 12.2");
    }
}

} // namespace

Pool::Pool(const Driver &driver, int32_t device, uint64_t max_bytes, bool shareable)
    : driver_(driver) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.handleTypes =
        shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    if (max_bytes != 0) {
        limit(driver, properties, max_bytes);
    }
    const common::RelaxedCapture relaxed(driver);
    driver.check(driver.cuMemPoolCreate(&pool_, &properties), "cuMemPoolCreate");
    if (shareable) {
        export_once();
    }
}

// The driver refuses to name allocations in the pool before the pool has been exported. The
// descriptor is not needed: the host has another one made for each importer. CUDA makes it without
// close-on-exec, so a program started at this moment keeps it, and the pool's memory, until the
// program ends.
void Pool::export_once() {
    int descriptor = -1;
    const CUresult result = driver_.cuMemPoolExportToShareableHandle(
        &descriptor, pool_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        driver_.cuMemPoolDestroy(pool_);
        driver_.check(result, "cuMemPoolExportToShareableHandle");
    }
    close(descriptor);
}

void Pool::fail(CUresult result, size_t size) const {
    char what[64];
    snprintf(what, sizeof what, "cuMemAllocFromPoolAsync of %zu bytes", size);
    driver_.fail(result, what);
}

void Pool::set_release_threshold(uint64_t bytes) const {
    cuuint64_t value = bytes;
    driver_.check(driver_.cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value),
                  "setting a pool's release threshold");
}

void Pool::set_access(int32_t peer_device, uint32_t flags) const {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = peer_device;
    access.flags = static_cast<CUmemAccess_flags>(flags);
    driver_.check(driver_.cuMemPoolSetAccess(pool_, &access, 1), "cuMemPoolSetAccess");
}

} // namespace emm::async
