#pragma once

#include "passthrough/driver.h"

namespace emm::async {

// What a pool of the driver's own needs on top of passthrough's entries.
struct Driver : passthrough::Driver {
    explicit Driver(const emm_host &host);

    decltype(&::cuDriverGetVersion) cuDriverGetVersion;
    decltype(&::cuMemPoolCreate) cuMemPoolCreate;
    decltype(&::cuMemPoolDestroy) cuMemPoolDestroy;
    decltype(&::cuMemPoolSetAttribute) cuMemPoolSetAttribute;
    decltype(&::cuMemPoolGetAttribute) cuMemPoolGetAttribute;
    decltype(&::cuMemPoolSetAccess) cuMemPoolSetAccess;
    decltype(&::cuMemPoolTrimTo) cuMemPoolTrimTo;
    decltype(&::cuMemAllocFromPoolAsync) cuMemAllocFromPoolAsync;
    decltype(&::cuMemPoolExportToShareableHandle) cuMemPoolExportToShareableHandle;
    decltype(&::cuMemPoolExportPointer) cuMemPoolExportPointer;
    decltype(&::cuMemFreeAsync) cuMemFreeAsync;
    decltype(&::cuMemGetInfo) cuMemGetInfo;
    decltype(&::cuStreamCreate) cuStreamCreate;
    decltype(&::cuStreamDestroy) cuStreamDestroy;
    decltype(&::cuStreamSynchronize) cuStreamSynchronize;
    decltype(&::cuStreamWaitEvent) cuStreamWaitEvent;
    decltype(&::cuEventCreate) cuEventCreate;
    decltype(&::cuEventDestroy) cuEventDestroy;
    decltype(&::cuCtxSynchronize) cuCtxSynchronize;
    CUresult (*ctx_record_event)(CUcontext, CUevent); // NULL before CUDA 12.5
};

} // namespace emm::async
