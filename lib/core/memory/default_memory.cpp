#include "core/memory/default_memory.h"

#include "core/account/watch.h"
#include "core/record/context.h"
#include "core/record/counters.h"
#include "observe/error.h"

#include <memory>
#include <string>

namespace emm::core {
namespace {

void *pointer_to(uint64_t address) {
    return reinterpret_cast<void *>(uintptr_t(address));
}

// For host memory the driver's "out of memory" is about the host.
emm_status fail_for_host(CUresult result, const char *call) {
    const emm_status status = driver::fail(result, call);
    if (status != EMM_E_OUT_OF_MEMORY) {
        return status;
    }
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, result, observe::last_error()->text);
}

} // namespace

// A free on the queue of pending deallocations.
struct DefaultMemory::Pending {
    DefaultMemory *memory;
    uint64_t address;
    Kind kind;
};

emm_status DefaultMemory::add(uint64_t address, Block block) {
    try {
        std::lock_guard lock(mutex_);
        live_[address] = block;
        return EMM_OK;
    } catch (const std::bad_alloc &) {
        release_now(address, block.kind);
        return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no memory to register an allocation");
    }
}

emm_status DefaultMemory::take(uint64_t address, Kind kind, size_t size, Live::node_type *ret_block,
                               uint32_t flags) {
    std::unique_lock lock(mutex_);
    const auto found = live_.find(address);
    if (found == live_.end() || found->second.kind != kind || found->second.flags != flags) {
        lock.unlock();
        const char *const kinds[] = {"pinned", "registered", "managed"};
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "{:#x} is not {} memory of this context: freed already, or never "
                             "allocated{}",
                             address, kinds[static_cast<int>(kind)],
                             kind == Kind::pinned ? ", or with other flags" : "");
    }
    if (size != 0 && size != found->second.size) {
        const size_t expected = found->second.size;
        lock.unlock();
        return observe::refuse("the size given with {:#x}: expected {}, found {}", address,
                               expected, size);
    }
    *ret_block = live_.extract(found);
    return EMM_OK;
}

void DefaultMemory::put_back(Live::node_type block) {
    const std::lock_guard lock(mutex_);
    live_.insert(std::move(block));
}

emm_status DefaultMemory::release_now(uint64_t address, Kind kind) {
    const driver::Driver &driver = context_.driver;
    driver::RelaxedCapture relaxed(driver);
    CUresult result = CUDA_SUCCESS;
    const char *call = "";
    switch (kind) {
    case Kind::pinned:
        result = driver.cuMemFreeHost(pointer_to(address));
        call = "cuMemFreeHost";
        break;
    case Kind::registered:
        result = driver.cuMemHostUnregister(pointer_to(address));
        call = "cuMemHostUnregister";
        break;
    case Kind::managed:
        result = driver.cuMemFree(address);
        call = "cuMemFree";
        break;
    }
    if (driver::is_late(result)) {
        ++counters().late_frees;
        return EMM_OK;
    }
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, call);
}

emm_status DefaultMemory::release_pending(void *argument, uint32_t what) {
    const std::unique_ptr<Pending> pending(static_cast<Pending *>(argument));
    return what == EMM_DEFERRED_RUN ? pending->memory->release_now(pending->address, pending->kind)
                                    : EMM_OK;
}

emm_status DefaultMemory::free(uint64_t address, Kind kind, size_t size, uint32_t flags,
                               emm_stream stream) {
    Live::node_type block;
    emm_status status = refuse_capturing(stream);
    if (status == EMM_OK) {
        status = take(address, kind, size, &block, flags);
    }
    return status == EMM_OK ? release_later(std::move(block)) : status;
}

// The graph would use the memory whenever it is launched.
emm_status DefaultMemory::refuse_capturing(emm_stream stream) const {
    if (stream == EMM_STREAM_UNORDERED || reinterpret_cast<uintptr_t>(stream) <= 1) {
        return EMM_OK; // the legacy stream is never captured
    }
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    CUstreamCaptureStatus captures = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = current.result() == CUDA_SUCCESS
                                ? driver.cuStreamIsCapturing(stream, &captures)
                                : current.result();
    if (result != CUDA_SUCCESS && !driver::is_late(result)) {
        return driver::fail(result, "cuStreamIsCapturing");
    }
    return captures != CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? EMM_OK
               : observe::fail(EMM_E_CAPTURING, 0,
                               "the stream captures: a graph would use the memory whenever it is "
                               "launched; it was not freed");
}

// Without memory for an entry the free happens at once; that costs a wait, and loses nothing.
emm_status DefaultMemory::release_later(Live::node_type block) {
    auto pending = std::unique_ptr<Pending>(new (std::nothrow)
                                                Pending{this, block.key(), block.mapped().kind});
    if (pending &&
        defer(context_, &release_pending, pending.get(), block.mapped().size) == EMM_OK) {
        pending.release();
        return EMM_OK;
    }
    return release_or_put_back(std::move(block));
}

// What the driver does not take back stays the caller's, who may try again.
emm_status DefaultMemory::release_or_put_back(Live::node_type block) {
    const emm_status status = release_now(block.key(), block.mapped().kind);
    if (status < EMM_OK) {
        put_back(std::move(block));
    }
    return status;
}

emm_status DefaultMemory::device_address(void *host, uint32_t flags, emm_deviceptr *ret_device) {
    *ret_device = 0;
    if ((flags & EMM_HOST_MAPPED) == 0) {
        return EMM_OK;
    }
    const CUresult result = context_.driver.cuMemHostGetDevicePointer(ret_device, host, 0);
    return result == CUDA_SUCCESS ? EMM_OK : driver::fail(result, "cuMemHostGetDevicePointer");
}

emm_status DefaultMemory::host_alloc(size_t size, uint32_t flags, void **ret_host,
                                     emm_deviceptr *ret_device) {
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    void *host = nullptr;
    emm_deviceptr device = 0;
    const CUresult result = driver.cuMemHostAlloc(&host, size, flags);
    if (result != CUDA_SUCCESS) {
        return fail_for_host(result, "cuMemHostAlloc");
    }
    emm_status status = device_address(host, flags, &device);
    if (status != EMM_OK) {
        driver.cuMemFreeHost(host);
        return status;
    }
    status = add(address_of(host), {Kind::pinned, size, flags});
    if (status == EMM_OK) {
        *ret_host = host;
        *ret_device = device;
    }
    return status;
}

emm_status DefaultMemory::host_free(void *host, size_t size, uint32_t flags, emm_stream stream) {
    return free(address_of(host), Kind::pinned, size, flags, stream);
}

emm_status DefaultMemory::pin(void *host, size_t size, uint32_t flags, emm_deviceptr *ret_device) {
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    emm_deviceptr device = 0;
    const CUresult result = driver.cuMemHostRegister(host, size, flags);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        return observe::fail(EMM_E_BUSY, result,
                             "a part of the {} bytes at {:#x} is pinned already", size,
                             address_of(host));
    }
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(EMM_E_INVALID_VALUE, result,
                             "a range to pin: expected memory of the process's own, not pinned by "
                             "an allocation, and writable unless EMM_HOST_READ_ONLY is given; "
                             "found {} bytes at {:#x}",
                             size, address_of(host));
    }
    if (result != CUDA_SUCCESS) {
        return fail_for_host(result, "cuMemHostRegister");
    }
    emm_status status = device_address(host, flags, &device);
    if (status != EMM_OK) {
        driver.cuMemHostUnregister(host);
        return status;
    }
    status = add(address_of(host), {Kind::registered, size});
    if (status == EMM_OK) {
        *ret_device = device;
    }
    return status;
}

emm_status DefaultMemory::unpin(void *host, size_t size) {
    Live::node_type block;
    const emm_status status = take(address_of(host), Kind::registered, size, &block);
    return status == EMM_OK ? release_or_put_back(std::move(block)) : status;
}

emm_status DefaultMemory::alloc_managed(size_t size, uint32_t flags, emm_deviceptr *ret_ptr) {
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    const driver::RelaxedCapture relaxed(driver);
    CUdeviceptr ptr = 0;
    const CUresult result = driver.cuMemAllocManaged(&ptr, size, flags);
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuMemAllocManaged");
    }
    const emm_status status = add(ptr, {Kind::managed, size});
    if (status == EMM_OK) {
        *ret_ptr = ptr;
    }
    return status;
}

emm_status DefaultMemory::free_managed(emm_deviceptr ptr, size_t size, emm_stream stream) {
    return free(ptr, Kind::managed, size, 0, stream);
}

emm_status DefaultMemory::memory_info(size_t *ret_free, size_t *ret_total) {
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    const driver::RelaxedCapture relaxed(driver);
    size_t free = 0, total = 0;
    const CUresult result =
        current.result() == CUDA_SUCCESS ? driver.cuMemGetInfo(&free, &total) : current.result();
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "cuMemGetInfo");
    }
    *ret_free = free;
    *ret_total = total;
    return EMM_OK;
}

void DefaultMemory::release_all() noexcept {
    std::map<uint64_t, Block> blocks;
    {
        std::lock_guard lock(mutex_);
        blocks.swap(live_);
    }
    if (blocks.empty() || !is_alive(context_)) {
        return;
    }
    const observe::Preserved said; // by the plugin, if its reset has failed
    for (const auto &[address, block] : blocks) {
        release_now(address, block.kind);
    }
}

void make_defaults(emm_context &context) {
    if (!context.defaults) {
        context.defaults = reinterpret_cast<emm_manager *>(new DefaultMemory(context));
    }
}

DefaultMemory &defaults_of(emm_context &context) noexcept {
    return *reinterpret_cast<DefaultMemory *>(context.defaults);
}

void release_defaults(emm_context &context) noexcept {
    if (context.defaults) {
        defaults_of(context).release_all();
    }
}

uint64_t DefaultMemory::pinned_bytes() const {
    std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const auto &[address, block] : live_) {
        bytes += block.kind == Kind::pinned ? block.size : 0;
    }
    return bytes;
}

} // namespace emm::core
