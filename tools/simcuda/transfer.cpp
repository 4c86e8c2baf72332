#include "call.h"
#include "simcuda.h"
#include "simulator.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace simcuda {
namespace {

CUdeviceptr address_of(const void *pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

struct Copy {
    CUdeviceptr to, from;
    size_t bytes;
    bool to_host = false, from_host = false; // may be memory that the driver does not know
};

void add_uses(const std::vector<Span> &spans, bool write, Task &task) {
    for (const Span &span : spans) {
        task.uses.push_back({span, write});
    }
}

// Both sides may be in pieces, cut at different places.
void copy_spans(std::vector<Span> to, std::vector<Span> from) {
    for (size_t i = 0, j = 0; i < to.size() && j < from.size();) {
        const uint64_t length = std::min(to[i].size, from[j].size);
        memmove(to[i].data(), from[j].data(), length);
        for (Span *span : {&to[i], &from[j]}) {
            span->offset += length;
            span->size -= length;
        }
        i += to[i].size == 0;
        j += from[j].size == 0;
    }
}

void bind_copy(const Copy &copy, Task &ret_task) {
    const auto to = resolve("destination", copy.to, copy.bytes, copy.to_host);
    const auto from = resolve("source", copy.from, copy.bytes, copy.from_host);
    add_uses(from, false, ret_task);
    add_uses(to, true, ret_task);
    ret_task.run = [=] { copy_spans(to, from); };
}

bool is_pageable(CUdeviceptr address) {
    return !sim().regions.around(address);
}

// Pageable host memory is read before the call returns, because the caller may change it.
void bind_staged(const Copy &copy, Task &ret_task) {
    const auto *source = reinterpret_cast<const std::byte *>(copy.from);
    const auto staged = std::make_shared<std::vector<std::byte>>(source, source + copy.bytes);
    const auto to = resolve("destination", copy.to, copy.bytes, copy.to_host);
    add_uses(to, true, ret_task);
    ret_task.run = [=] { copy_spans(to, {{nullptr, address_of(staged->data()), copy.bytes, 0}}); };
}

void copy_on(Stream &stream, const Copy &copy, bool synchronous) {
    if (copy.bytes == 0) {
        return;
    }
    const bool staged = copy.from_host && !stream.capture && is_pageable(copy.from);
    enqueue(stream, [=](Task &ret_task) {
        staged ? bind_staged(copy, ret_task) : bind_copy(copy, ret_task);
    });
    // A copy into memory that is not pinned is complete when the call returns.
    if (!stream.capture && (synchronous || (copy.to_host && is_pageable(copy.to)))) {
        wait_for(stream);
    }
}

void copy_async(CUstream handle, const Copy &copy) {
    copy_on(find_stream(handle), copy, false);
}

// Calls without a stream wait for the end, except for copies between device memory without
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
void copy_now(const Copy &copy) {
    const auto waits = [](CUdeviceptr address) {
        const Region *region = sim().regions.around(address);
        return !region || region->on_host() || region->sync_memops;
    };
    copy_on(find_stream(nullptr), copy, waits(copy.to) || waits(copy.from));
}

template <typename Value> void fill(const std::vector<Span> &spans, Value value) {
    for (const Span &span : spans) {
        if constexpr (sizeof(Value) == 1) {
            memset(span.data(), value, span.size);
        } else {
            auto *data = reinterpret_cast<Value *>(span.data());
            std::fill(data, data + span.size / sizeof value, value);
        }
    }
}

// Driver 580 sets no memory across two mappings that the host may access.
void refuse_across_host_mappings(CUdeviceptr address, uint64_t size) {
    const Region *const region = sim().regions.around(address);
    expect(!region || !region->host_access || address + size <= region->end());
}

template <typename Value>
void set_on(CUstream handle, CUdeviceptr address, Value value, size_t count) {
    Stream &stream = find_stream(handle);
    if (count == 0) {
        return;
    }
    expect(address % sizeof value == 0);
    refuse_across_host_mappings(address, count * sizeof value);
    enqueue(stream, [=](Task &ret_task) {
        const auto spans = resolve("destination", address, count * sizeof value, false);
        add_uses(spans, true, ret_task);
        ret_task.run = [=] { fill(spans, value); };
    });
}

// Calls without a stream wait only if they write memory that the host can read, or that has
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
template <typename Value> void set_now(CUdeviceptr address, Value value, size_t count) {
    set_on(nullptr, address, value, count);
    const Region *region = sim().regions.around(address);
    if (region && (region->on_host() || region->kind == Kind::managed || region->sync_memops)) {
        wait_for(find_stream(nullptr));
    }
}

} // namespace

void api::memcpy(CUdeviceptr dst, CUdeviceptr src, size_t byte_count) {
    copy_now({dst, src, byte_count, true, true});
}

void api::memcpy_async(CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream h_stream) {
    copy_async(h_stream, {dst, src, byte_count, true, true});
}

void api::memcpy_peer(CUdeviceptr dst_device, CUcontext, CUdeviceptr src_device, CUcontext,
                      size_t byte_count) {
    copy_now({dst_device, src_device, byte_count});
}

void api::memcpy_peer_async(CUdeviceptr dst_device, CUcontext, CUdeviceptr src_device, CUcontext,
                            size_t byte_count, CUstream h_stream) {
    copy_async(h_stream, {dst_device, src_device, byte_count});
}

void api::memcpy_htod(CUdeviceptr dst_device, const void *src_host, size_t byte_count) {
    copy_now({dst_device, address_of(src_host), byte_count, false, true});
}

void api::memcpy_dtoh(void *dst_host, CUdeviceptr src_device, size_t byte_count) {
    copy_now({address_of(dst_host), src_device, byte_count, true});
}

void api::memcpy_dtod(CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count) {
    copy_now({dst_device, src_device, byte_count});
}

void api::memcpy_htod_async(CUdeviceptr dst_device, const void *src_host, size_t byte_count,
                            CUstream h_stream) {
    copy_async(h_stream, {dst_device, address_of(src_host), byte_count, false, true});
}

void api::memcpy_dtoh_async(void *dst_host, CUdeviceptr src_device, size_t byte_count,
                            CUstream h_stream) {
    copy_async(h_stream, {address_of(dst_host), src_device, byte_count, true});
}

void api::memcpy_dtod_async(CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count,
                            CUstream h_stream) {
    copy_async(h_stream, {dst_device, src_device, byte_count});
}

void api::memset_d8(CUdeviceptr dst_device, unsigned char uc, size_t n) {
    set_now(dst_device, uc, n);
}

void api::memset_d16(CUdeviceptr dst_device, unsigned short us, size_t n) {
    set_now(dst_device, us, n);
}

void api::memset_d32(CUdeviceptr dst_device, unsigned int ui, size_t n) {
    set_now(dst_device, ui, n);
}

void api::memset_d8_async(CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream h_stream) {
    set_on(h_stream, dst_device, uc, n);
}

void api::memset_d16_async(CUdeviceptr dst_device, unsigned short us, size_t n, CUstream h_stream) {
    set_on(h_stream, dst_device, us, n);
}

void api::memset_d32_async(CUdeviceptr dst_device, unsigned int ui, size_t n, CUstream h_stream) {
    set_on(h_stream, dst_device, ui, n);
}

} // namespace simcuda
