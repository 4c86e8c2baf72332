#include "layers/guard/mapping.h"

#include <algorithm>
#include <type_traits>

namespace emm::guard {

void Mapping::make(const GuardDriver &driver, int32_t device) {
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    const CUmemAccessDesc access = {what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    driver.check(driver.cuMemAddressReserve(&range, layout.reserved, granule, 0, 0),
                 "cuMemAddressReserve");
    driver.check(driver.cuMemCreate(&handle, layout.mapped, &what, 0), "cuMemCreate");
    driver.check(driver.cuMemMap(range + layout.mapping, layout.mapped, 0, handle, 0), "cuMemMap");
    mapping = range + layout.mapping;
    driver.check(driver.cuMemSetAccess(mapping, layout.mapped, &access, 1), "cuMemSetAccess");
    driver.check(driver.cuMemRelease(handle), "cuMemRelease"); // the mapping keeps the memory
    handle = 0;
}

CUresult Mapping::undo(const GuardDriver &driver, CUstream stream) noexcept {
    CUresult result = CUDA_SUCCESS;
    const auto give = [&](auto &what, auto call) {
        if (what && result == CUDA_SUCCESS) {
            result = call();
            what = is_returned(result) ? std::decay_t<decltype(what)>() : what;
            result = is_returned(result) ? CUDA_SUCCESS : result;
        }
    };
    give(written, [&] { return driver.cuStreamSynchronize(stream); });
    give(mapping, [&] { return driver.cuMemUnmap(mapping, layout.mapped); });
    give(handle, [&] { return driver.cuMemRelease(handle); });
    give(range, [&] { return driver.cuMemAddressFree(range, layout.reserved); });
    return result;
}

// Writes the pattern to the block and its pad; for a large block, only to the end.
void Mapping::write_poison(const GuardDriver &driver, CUstream stream) {
    constexpr size_t longest = size_t(64) << 20;
    const CUdeviceptr end = range + layout.block + layout.padded;
    const size_t bytes = std::min(layout.padded, longest);
    written = true;
    driver.check(driver.cuMemsetD8Async(end - bytes, poison, bytes, stream), "cuMemsetD8Async");
    driver.check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    written = false;
}

} // namespace emm::guard
