#include "core/memory/default_memory.h"

#include "core/record/context.h"
#include "core/record/this_thread.h"
#include "core/tracking/watch.h"
#include "observe/error.h"

#include <memory>

namespace emm::core {
namespace {

void *pointer_to(uint64_t address) {
    return reinterpret_cast<void *>(uintptr_t(address));
}

// When the driver refuses host memory, its "out of memory" means the host.
emm_status fail_for_host(CUresult result, const char *call) {
    const emm_status status = driver::fail(result, call);
    if (status != EMM_E_OUT_OF_MEMORY) {
        return status;
    }
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, result, observe::last_error()->text);
}

std::atomic<bool> portable_given{false};

CUresult wait_for_work(const emm_context &context) noexcept {
    const driver::Current current(context.driver, context.cuda_context, context.id);
    const CUresult result =
        current.result() == CUDA_SUCCESS ? driver::wait_for_work(context.driver) : current.result();
    return driver::is_late(result) ? CUDA_SUCCESS : result;
}

// Waits for the work of all CUDA contexts but `own`'s. Contexts that are being reset or retired are
// left out: two such threads might wait for each other.
CUresult wait_for_others(const emm_context &own) noexcept {
    CUresult result = CUDA_SUCCESS;
    emm_context *other = first_context();
    for (; other && result == CUDA_SUCCESS; other = other->next) {
        const HandleCall call(other->epoch); // a retirement waits for this call
        if (!other->is_named() && other != &own.group &&
            (other->state.load(std::memory_order_acquire) & state_late) == 0) {
            result = Epoch::is_serving(call.epoch()) ? wait_for_work(*other) : CUDA_ERROR_NOT_READY;
        }
    }
    return result;
}

} // namespace

// A free on the queue of pending deallocations.
struct DefaultMemory::Pending {
    DefaultMemory *memory;
    Live::node_type block;
};

// The node is made before the memory, so that nothing can fail in between. Throws std::bad_alloc.
DefaultMemory::Live::node_type DefaultMemory::make_node(const Block &block) {
    Live one{{0, block}};
    return one.extract(one.begin());
}

// If the device address is asked for and cannot be had, the block is freed again.
emm_status DefaultMemory::give(Live::node_type block, uint32_t flags, emm_deviceptr *ret_device) {
    emm_deviceptr device = 0;
    const emm_status status = device_address(pointer_to(block.key()), flags, &device);
    if (status != EMM_OK) {
        const observe::Preserved said;
        release_or_keep(std::move(block), refused_);
        return status;
    }
    keep(std::move(block), live_);
    *ret_device = device;
    return EMM_OK;
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
                             kind == Kind::pinned ? ", or allocated with other flags" : "");
    }
    if (size != 0 && size != found->second.size) {
        const size_t expected = found->second.size;
        lock.unlock();
        return observe::refuse(
            "a free of {:#x} as {} bytes, which was allocated as {}; it was not freed", address,
            size, expected);
    }
    *ret_block = live_.extract(found);
    return EMM_OK;
}

void DefaultMemory::keep(Live::node_type block, Live &where) noexcept {
    const std::lock_guard lock(mutex_);
    where.insert(std::move(block));
}

emm_status DefaultMemory::release_now(uint64_t address, const Block &block) const {
    const driver::Driver &driver = context_.driver;
    CUresult result = block.is_everywhere ? wait_for_others(context_) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        return driver::fail(result, "waiting for the contexts that may use portable memory");
    }
    driver::RelaxedCapture relaxed(driver);
    const char *call = "";
    switch (block.kind) {
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
    return driver::check(result, call);
}

emm_status DefaultMemory::release_pending(void *argument, uint32_t what) {
    const std::unique_ptr<Pending> pending(static_cast<Pending *>(argument));
    DefaultMemory &memory = *pending->memory;
    memory.queued_pinned_ -= pinned_size(pending->block.mapped());
    return what == EMM_DEFERRED_RUN
               ? memory.release_or_keep(std::move(pending->block), memory.refused_)
               : EMM_OK;
}

emm_status DefaultMemory::free(uint64_t address, Kind kind, size_t size, uint32_t flags,
                               emm_stream stream) {
    retry_one();
    Live::node_type block;
    EMM_TRY(refuse_capturing(stream));
    EMM_TRY(take(address, kind, size, &block, flags));
    block.mapped().is_everywhere =
        (flags & EMM_HOST_PORTABLE) != 0 && stream == EMM_STREAM_UNORDERED;
    // If the block cannot be queued, it stays the caller's, who may try again.
    return release_later(std::move(block), live_);
}

// A graph would use the memory at every launch.
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
                               "the memory was not freed: the stream is capturing, and each launch "
                               "of the graph would use the memory");
}

// If the driver refuses again, the block returns to the queue.
void DefaultMemory::retry_one() noexcept {
    std::unique_lock lock(mutex_);
    if (!refused_.empty()) {
        Live::node_type block = refused_.extract(refused_.begin());
        lock.unlock();
        const observe::Preserved said;
        release_later(std::move(block), refused_);
    }
}

// A registered range is unpinned at once, because the program may pin it again. If the driver may
// be asked, managed memory is freed at once too, with a wait, as in CUDA: a new block may share
// pages with a block that still waits to be freed, and the driver would report that block's
// prefetches for the new one. Without host memory for a queue entry, every free happens at once.
emm_status DefaultMemory::release_later(Live::node_type block, Live &otherwise) {
    const size_t size = block.mapped().size;
    const Kind kind = block.mapped().kind;
    const bool at_once =
        kind == Kind::registered || (kind == Kind::managed && !context_.pending.in_section());
    std::unique_ptr<Pending> pending;
    if (!at_once) {
        pending.reset(new (std::nothrow) Pending{this, {}});
    }
    if (!pending) {
        return release_or_keep(std::move(block), otherwise);
    }
    const uint64_t pinned = pinned_size(block.mapped());
    pending->block = std::move(block);
    queued_pinned_ += pinned; // before the queue has the block, and may run it
    if (defer(context_, &release_pending, pending.get(), size) == EMM_OK) {
        pending.release();
        return EMM_OK;
    }
    queued_pinned_ -= pinned;
    return release_or_keep(std::move(pending->block), otherwise);
}

emm_status DefaultMemory::release_or_keep(Live::node_type block, Live &otherwise) noexcept {
    const emm_status status = release_now(block.key(), block.mapped());
    if (status < EMM_OK) {
        keep(std::move(block), otherwise);
    }
    return status;
}

emm_status DefaultMemory::device_address(void *host, uint32_t flags,
                                         emm_deviceptr *ret_device) const {
    if ((flags & EMM_HOST_MAPPED) == 0) {
        return EMM_OK;
    }
    const CUresult result = context_.driver.cuMemHostGetDevicePointer(ret_device, host, 0);
    return driver::check(result, "cuMemHostGetDevicePointer");
}

emm_status DefaultMemory::host_alloc(size_t size, uint32_t flags, void **ret_host,
                                     emm_deviceptr *ret_device) {
    retry_one();
    Live::node_type block = make_node({Kind::pinned, size, flags});
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    if ((flags & EMM_HOST_PORTABLE) != 0) {
        portable_given.store(true, std::memory_order_release);
    }
    void *host = nullptr;
    const CUresult result = driver.cuMemHostAlloc(&host, size, flags);
    if (result != CUDA_SUCCESS) {
        return fail_for_host(result, "cuMemHostAlloc");
    }
    block.key() = address_of(host);
    EMM_TRY(give(std::move(block), flags, ret_device));
    *ret_host = host;
    return EMM_OK;
}

emm_status DefaultMemory::host_free(void *host, size_t size, uint32_t flags, emm_stream stream) {
    return free(address_of(host), Kind::pinned, size, flags, stream);
}

emm_status DefaultMemory::pin(void *host, size_t size, uint32_t flags, emm_deviceptr *ret_device) {
    retry_one();
    Live::node_type block = make_node({Kind::registered, size});
    block.key() = address_of(host);
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    const CUresult result = driver.cuMemHostRegister(host, size, flags);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        return observe::fail(EMM_E_BUSY, result,
                             "a part of the {} bytes at {:#x} is pinned already", size,
                             address_of(host));
    }
    if (result == CUDA_ERROR_INVALID_VALUE) {
        return observe::fail(
            EMM_E_INVALID_VALUE, result,
            "cannot pin {} bytes at {:#x}: the range must be the process's own memory, not pinned "
            "by an allocation, and writable unless EMM_HOST_READ_ONLY is given",
            size, address_of(host));
    }
    if (result != CUDA_SUCCESS) {
        return fail_for_host(result, "cuMemHostRegister");
    }
    return give(std::move(block), flags, ret_device);
}

emm_status DefaultMemory::unpin(void *host, size_t size) {
    Live::node_type block;
    EMM_TRY(take(address_of(host), Kind::registered, size, &block));
    return release_or_keep(std::move(block), live_);
}

emm_status DefaultMemory::alloc_managed(size_t size, uint32_t flags, emm_deviceptr *ret_ptr) {
    retry_one();
    Live::node_type block = make_node({Kind::managed, size});
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    EMM_TRY(current.status());
    const driver::RelaxedCapture relaxed(driver);
    CUdeviceptr ptr = 0;
    EMM_TRY(EMM_DRIVER_CALL(driver, cuMemAllocManaged, &ptr, size, flags));
    block.key() = ptr;
    keep(std::move(block), live_);
    *ret_ptr = ptr;
    return EMM_OK;
}

emm_status DefaultMemory::ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle) {
    return sharing->get_legacy_handle(context_, ptr, size, ret_handle);
}

emm_status DefaultMemory::free_managed(emm_deviceptr ptr, size_t size, emm_stream stream) {
    return free(ptr, Kind::managed, size, 0, stream);
}

emm_status DefaultMemory::memory_info(size_t *ret_free, size_t *ret_total) {
    const driver::Driver &driver = context_.driver;
    const driver::Current current(driver, context_.cuda_context, context_.id);
    const driver::RelaxedCapture relaxed(driver);
    size_t free = 0, total = 0;
    EMM_TRY(current.status());
    EMM_TRY(EMM_DRIVER_CALL(driver, cuMemGetInfo, &free, &total));
    *ret_free = free;
    *ret_total = total;
    return EMM_OK;
}

void DefaultMemory::retry_all() noexcept {
    const observe::Preserved said; // if the plugin's reset has failed, its sentence stays
    Live blocks;
    {
        std::lock_guard lock(mutex_);
        blocks.swap(refused_);
    }
    while (!blocks.empty()) {
        release_or_keep(blocks.extract(blocks.begin()), refused_);
    }
}

// Blocks that the driver refuses are tried once more here: a retired context has no later call.
void DefaultMemory::release_all() noexcept {
    {
        std::lock_guard lock(mutex_);
        refused_.merge(live_);
        if (!is_alive(context_)) {
            refused_.clear();
        }
    }
    retry_all();
    retry_all();
}

bool DefaultMemory::finish_unpin(void *host) noexcept {
    std::unique_lock lock(mutex_);
    const auto found = refused_.find(address_of(host));
    if (found == refused_.end() || found->second.kind != Kind::registered) {
        return true;
    }
    Live::node_type block = refused_.extract(found);
    lock.unlock();
    const observe::Preserved said;
    return release_or_keep(std::move(block), refused_) >= EMM_OK;
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

void finish_uses_of_portable(const emm_context &context) noexcept {
    if (portable_given.load(std::memory_order_acquire) && is_alive(context)) {
        wait_for_work(context);
    }
}

uint64_t DefaultMemory::pinned_size(const Live &blocks) {
    uint64_t bytes = 0;
    for (const auto &[address, block] : blocks) {
        bytes += pinned_size(block);
    }
    return bytes;
}

uint64_t DefaultMemory::pinned_bytes() const {
    std::lock_guard lock(mutex_);
    return pinned_size(live_);
}

uint64_t DefaultMemory::freed_pinned_bytes() const {
    std::lock_guard lock(mutex_);
    return queued_pinned_ + pinned_size(refused_);
}

namespace {

// If a layer returns the same status, the sentence stays.
emm_status described(emm_status status) {
    observe::make_plugin_word();
    return status;
}

// The slot of a member: `self` is the context's DefaultMemory.
template <auto member> struct Of;
template <class... Arguments, emm_status (DefaultMemory::*member)(Arguments...)> struct Of<member> {
    // A layer may call the slot, in C and with a lock of its own held.
    static emm_status slot(emm_manager *self, Arguments... arguments) noexcept {
        const Uncancelled uncancelled;
        const emm_status status = observe::with_memory("no host memory for its record", [&] {
            return (reinterpret_cast<DefaultMemory *>(self)->*member)(arguments...);
        });
        return status < EMM_OK ? described(status) : status;
    }
};

template <class... Arguments> emm_status nothing_to_do(Arguments...) {
    return EMM_OK;
}

emm_status not_supported(const char *what) noexcept {
    return described(observe::fail(EMM_E_NOT_SUPPORTED, 0, "this plugin does not {}", what));
}

emm_plugin make_table() {
    auto table = observe::sized<emm_plugin>();
    table.destroy = table.initialize = nothing_to_do;
    table.memhostalloc = Of<&DefaultMemory::host_alloc>::slot;
    table.memhostfree = Of<&DefaultMemory::host_free>::slot;
    table.mempin = Of<&DefaultMemory::pin>::slot;
    table.memunpin = Of<&DefaultMemory::unpin>::slot;
    table.memallocmanaged = Of<&DefaultMemory::alloc_managed>::slot;
    table.memfreemanaged = Of<&DefaultMemory::free_managed>::slot;
    table.get_memory_info = Of<&DefaultMemory::memory_info>::slot;
    table.get_ipc_handle = Of<&DefaultMemory::ipc_handle>::slot;
    table.release_ipc_handle = nothing_to_do; // CUDA keeps nothing for a handle
    table.reset = nothing_to_do;              // never called: the host destroys and creates instead
    table.defer_cleanup = nothing_to_do;
    table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        *ret_released = 0;
        return EMM_OK;
    };
    table.query = [](emm_manager *, emm_deviceptr, emm_block_info *) {
        return not_supported("describe its allocations");
    };
    table.record_use = [](emm_manager *, emm_deviceptr, size_t, emm_stream) {
        return not_supported("order reuse after work on other streams");
    };
    table.stream_notice = nothing_to_do;
    table.set_access = [](emm_manager *, int32_t, uint32_t) {
        return not_supported("give other devices access to its memory");
    };
    table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        auto zeros = observe::sized<emm_stats>();
        emm_copy_sized(ret_stats, &zeros);
        return EMM_OK;
    };
    table.get_device_total = [](const emm_host *, int32_t, size_t device_bytes, const char *const *,
                                size_t *ret_total) -> emm_status {
        *ret_total = device_bytes;
        return EMM_OK;
    };
    table.check_options = nothing_to_do;
    table.pause = [](emm_manager *, uint32_t, size_t *) {
        return not_supported("pause: its memory stays on the device");
    };
    table.resume = [](emm_manager *, uint32_t) -> emm_status { return EMM_S_IGNORED; };
    table.set_option = [](emm_manager *, const char *, const char *) {
        return not_supported("change options while it serves");
    };
    table.reset_peaks = [](emm_manager *) { return not_supported("reset its peaks"); };
    table.read_paused = [](emm_manager *, emm_deviceptr, size_t, void *) {
        return not_supported("read what a pause has kept");
    };
    return table;
}

} // namespace

// Slots that keep memory are members of DefaultMemory. The others answer that the plugin cannot do
// this, or that there is nothing to do.
const emm_plugin &default_slots() {
    static const emm_plugin table = make_table();
    return table;
}

} // namespace emm::core
