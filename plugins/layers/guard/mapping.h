#pragma once

#include "common/driver.h"

#include <cstddef>

namespace emm::guard {

using namespace common;

inline constexpr size_t alignment = 256, granule = size_t(2) << 20;
inline constexpr unsigned char poison = 0xcb;

inline size_t round_up(size_t size, size_t unit) {
    return (size + unit - 1) / unit * unit;
}

// The position of a block in its reserved addresses; all of it follows from the block's size.
struct Layout {
    size_t padded, mapped, reserved; // bytes: of the block with its pad, of memory, of addresses
    size_t mapping, block;           // offsets
};
inline Layout layout_of(size_t size, bool at_end) {
    const size_t padded = round_up(size, alignment), mapped = round_up(size, granule);
    const size_t mapping = at_end ? 0 : granule;
    return {padded, mapped, mapped + granule, mapping, at_end ? mapped - padded : mapping};
}

struct GuardDriver : StreamDriver {
    explicit GuardDriver(const emm_host &host) : StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuMemAddressReserve);
    EMM_CUDA_REQUIRED(cuMemAddressFree);
    EMM_CUDA_REQUIRED(cuMemCreate);
    EMM_CUDA_REQUIRED(cuMemRelease);
    EMM_CUDA_REQUIRED(cuMemMap);
    EMM_CUDA_REQUIRED(cuMemUnmap);
    EMM_CUDA_REQUIRED(cuMemSetAccess);
    EMM_CUDA_REQUIRED(cuMemsetD8Async);
    EMM_CUDA_REQUIRED(cuMemcpyDtoHAsync);
};

// The memory of one block. After any failure, the members say what exists.
struct Mapping {
    CUdeviceptr range = 0, mapping = 0; // 0: does not exist
    CUmemGenericAllocationHandle handle = 0;
    Layout layout = {};
    size_t taken = 0;     // bytes of the bound
    bool written = false; // the guard's own stream may still be writing to it

    void make(const GuardDriver &driver, int32_t device); // throws
    void write_poison(const GuardDriver &driver, CUstream stream);

    // Undoes as much as possible; the rest can be tried again.
    CUresult undo(const GuardDriver &driver, CUstream stream) noexcept;
};

} // namespace emm::guard
