// growth=vmm, the driver's side: pages made, mapped and given back. No lock is held.
#include "manager.h"

#include <utility>

namespace emm::pool {
namespace {

constexpr uint64_t page_bytes = segment_granule;

CUmemAllocationProp properties(int32_t device, bool shareable) {
    CUmemAllocationProp found = {};
    found.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    found.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    found.location.id = device;
    if (shareable) {
        found.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return found;
}

uint64_t &handle_at(const Block &block, uint64_t number) {
    const Segment &segment = *block.segment;
    return segment.handles[(block.begin - segment.base) / page_bytes + number];
}

} // namespace

// One call for all pages; page by page if that fails, so that it is known how far it went.
uint64_t Manager::unmap(Block &block, std::vector<uint64_t> &handles, CUresult &result) {
    const Relaxed relaxed(driver_);
    const uint64_t pages = block.size / page_bytes;
    const bool at_once = driver_.cuMemUnmap(block.begin, block.size) == CUDA_SUCCESS;
    for (uint64_t i = 0; i < pages; i++) {
        result =
            at_once ? CUDA_SUCCESS : driver_.cuMemUnmap(block.begin + i * page_bytes, page_bytes);
        if (result != CUDA_SUCCESS) {
            return i;
        }
        handles.push_back(std::exchange(handle_at(block, i), 0));
    }
    return pages;
}

CUresult Manager::create_page(uint64_t bytes, uint64_t &ret_handle) const {
    const CUmemAllocationProp wanted = properties(device_, pages_shareable_);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = driver_.cuMemCreate(&handle, bytes, &wanted, 0);
    ret_handle = handle;
    return result;
}

// All of them or none. Many are asked for in one piece first: what cannot be had is known then
// before other programs miss it.
CUresult Manager::create_pages(std::vector<uint64_t> &handles, uint64_t count) {
    constexpr uint64_t many = 32;
    const Relaxed relaxed(driver_);
    CUresult result = CUDA_SUCCESS;
    uint64_t handle = 0;
    if (count >= many) {
        result = create_page(count * page_bytes, handle);
        if (result == CUDA_SUCCESS) {
            driver_.cuMemRelease(handle);
        }
    }
    while (handles.size() < count && result == CUDA_SUCCESS) {
        result = create_page(page_bytes, handle);
        if (result == CUDA_SUCCESS) {
            handles.push_back(handle);
        }
    }
    while (result != CUDA_SUCCESS && !handles.empty()) {
        driver_.cuMemRelease(handles.back());
        handles.pop_back();
    }
    return result;
}

// How many pages are in place, from the block's beginning; the other handles are gone. If not all
// can be, the first `kept` are all that stay.
uint64_t Manager::map_pages(Block &block, const std::vector<uint64_t> &handles, uint64_t kept,
                            const std::vector<CUmemAccessDesc> &access, CUresult &result) {
    const Relaxed relaxed(driver_);
    uint64_t mapped = 0;
    CUresult latest = CUDA_SUCCESS;
    while (mapped < handles.size() && latest == CUDA_SUCCESS) {
        const CUdeviceptr at = block.begin + mapped * page_bytes;
        latest = driver_.cuMemMap(at, page_bytes, 0, handles[mapped], 0);
        if (latest == CUDA_ERROR_ALREADY_MAPPED && block.segment->stuck &&
            driver_.cuMemUnmap(at, page_bytes) == CUDA_SUCCESS) {
            latest = driver_.cuMemMap(at, page_bytes, 0, handles[mapped], 0);
        }
        mapped += latest == CUDA_SUCCESS;
    }
    const bool short_of = latest != CUDA_SUCCESS || result != CUDA_SUCCESS;
    if (short_of && mapped > kept &&
        driver_.cuMemUnmap(block.begin + kept * page_bytes, (mapped - kept) * page_bytes) ==
            CUDA_SUCCESS) {
        mapped = kept;
    }
    if (mapped > 0) {
        const CUresult granted =
            driver_.cuMemSetAccess(block.begin, mapped * page_bytes, access.data(), access.size());
        if (granted != CUDA_SUCCESS) {
            if (driver_.cuMemUnmap(block.begin, mapped * page_bytes) != CUDA_SUCCESS) {
                block.segment->stuck = true;
            }
            mapped = 0;
            latest = granted;
        }
    }
    for (uint64_t i = 0; i < handles.size(); i++) {
        if (i < mapped) {
            handle_at(block, i) = handles[i];
        } else {
            driver_.cuMemRelease(handles[i]);
        }
    }
    result = result == CUDA_SUCCESS ? latest : result;
    return mapped;
}

// No lock is held, and nobody uses the memory any more; the device may still be at it. What the
// driver refuses is kept for another time: 64 GiB of addresses each would soon be all there are
// where a tool such as the thread sanitizer leaves a program few of them.
uint64_t Manager::free_space(Segment &segment) {
    const bool again = std::exchange(segment.refused, false); // then it has been counted
    uint64_t bytes = 0;
    const Relaxed relaxed(driver_);
    for (uint64_t i = 0; i < segment.handles.size(); i++) {
        if (uint64_t &handle = segment.handles[i]) {
            bytes += again ? 0 : page_bytes;
            if (driver_.cuMemUnmap(segment.base + i * page_bytes, page_bytes) == CUDA_SUCCESS) {
                driver_.cuMemRelease(std::exchange(handle, 0));
            } else {
                segment.refused = true;
            }
        }
    }
    if (!segment.refused && !segment.stuck) {
        segment.refused =
            driver_.cuMemAddressFree(segment.driver_base, segment.driver_bytes) != CUDA_SUCCESS;
    }
    return bytes;
}

} // namespace emm::pool
