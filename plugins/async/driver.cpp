#include "async/driver.h"

namespace emm::async {

Driver::Driver(const emm_host &host) : passthrough::Driver(host) {
    using passthrough::find_entry;
    using passthrough::require_entry;
    require_entry(host, "cuDriverGetVersion", cuDriverGetVersion);
    require_entry(host, "cuMemPoolCreate", cuMemPoolCreate);
    require_entry(host, "cuMemPoolDestroy", cuMemPoolDestroy);
    require_entry(host, "cuMemPoolSetAttribute", cuMemPoolSetAttribute);
    require_entry(host, "cuMemPoolGetAttribute", cuMemPoolGetAttribute);
    require_entry(host, "cuMemPoolSetAccess", cuMemPoolSetAccess);
    require_entry(host, "cuMemPoolTrimTo", cuMemPoolTrimTo);
    require_entry(host, "cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync);
    require_entry(host, "cuMemPoolExportToShareableHandle", cuMemPoolExportToShareableHandle);
    require_entry(host, "cuMemPoolExportPointer", cuMemPoolExportPointer);
    require_entry(host, "cuMemFreeAsync", cuMemFreeAsync);
    require_entry(host, "cuMemGetInfo", cuMemGetInfo);
    require_entry(host, "cuStreamCreate", cuStreamCreate);
    require_entry(host, "cuStreamDestroy", cuStreamDestroy);
    require_entry(host, "cuStreamSynchronize", cuStreamSynchronize);
    require_entry(host, "cuStreamWaitEvent", cuStreamWaitEvent);
    require_entry(host, "cuEventCreate", cuEventCreate);
    require_entry(host, "cuEventDestroy", cuEventDestroy);
    require_entry(host, "cuCtxSynchronize", cuCtxSynchronize);
    find_entry(host, "cuCtxRecordEvent", ctx_record_event, 12050);
}

} // namespace emm::async
