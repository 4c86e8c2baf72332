// Where managed memory lies, and which parts may be forgotten. Here it is host memory at one
// address, so devices do not run out of it.
#include "call.h"
#include "capture.h"
#include "simulator.h"

#include <sys/mman.h>

namespace simcuda {
namespace {

constexpr CUdeviceptr host_page = 4096;

void check_managed(CUdeviceptr start, size_t size) {
    const Region *region = sim().regions.around(start);
    expect(size != 0 && region && region->kind == Kind::managed && size <= region->end() - start);
}

// A prefetch counts as no use of the memory, so other accesses are allowed meanwhile.
void prefetch(CUdeviceptr start, size_t size, CUstream handle) {
    Stream &stream = find_stream(handle);
    check_no_capture(stream);
    check_managed(start, size);
    enqueue(stream, [](Task &ret_task) { ret_task.run = [] {}; });
}

// The content of whole pages is lost: until the next write, reads of them give indeterminate
// values.
void forget(CUdeviceptr start, size_t size) {
    const CUdeviceptr first = (start + host_page - 1) / host_page * host_page;
    const CUdeviceptr end = (start + size) / host_page * host_page;
    if (first < end) {
        madvise(reinterpret_cast<void *>(first), end - first, MADV_DONTNEED);
    }
}

} // namespace

void api::mem_prefetch_async_v1(CUdeviceptr dev_ptr, size_t count, CUdevice dst_device,
                                CUstream h_stream) {
    expect(dst_device == CU_DEVICE_CPU || device_at(dst_device), CUDA_ERROR_INVALID_DEVICE);
    prefetch(dev_ptr, count, h_stream);
}

void api::mem_prefetch_async(CUdeviceptr dev_ptr, size_t count, CUmemLocation location,
                             unsigned int flags, CUstream h_stream) {
    expect(flags == 0 && location.type != CU_MEM_LOCATION_TYPE_INVALID);
    expect(location.type != CU_MEM_LOCATION_TYPE_DEVICE || device_at(location.id),
           CUDA_ERROR_INVALID_DEVICE);
    prefetch(dev_ptr, count, h_stream);
}

void api::mem_discard_batch_async(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                  unsigned long long flags, CUstream h_stream) {
    Stream &stream = find_stream(h_stream);
    expect(dptrs && sizes && count != 0 && flags == 0 && stream.kind != Stream::Kind::legacy);
    check_no_capture(stream);
    for (size_t i = 0; i < count; i++) {
        check_managed(dptrs[i], sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        const CUdeviceptr start = dptrs[i];
        const size_t size = sizes[i];
        enqueue(stream, [=](Task &ret_task) {
            for (const Span &span : resolve("range", start, size, false)) {
                ret_task.uses.push_back({span, true});
            }
            ret_task.run = [=] { forget(start, size); };
        });
    }
}

} // namespace simcuda
