// guard: a layer that finds writes past a block, uses after a free, and wrong frees, for programs
// that do not run under compute-sanitizer. Each block has a mapping of its own, at least 2 MiB. The
// block ends where nothing is mapped (or begins there, place=begin), so the device stops a kernel
// that runs past the block:
//
//     reserved   |............mapping............|..nothing..|
//     place=end            head    | block | pad |
//
// The pad, under 256 bytes, comes from the block's alignment. When the block is freed, the pad's
// bytes are compared with their first values. A freed block's memory goes back to the driver; its
// addresses stay reserved and empty for the next `quarantine` frees. A free waits for its stream.
// Blocks that no stream orders, and blocks of graphs, go back behind a wait for the whole context,
// in a call that may wait so (plugins/README.md, "Rules"). Pinned and managed memory, and
// everything else, is served by the plugin below.
#include "common/allocations.h"
#include "common/driver.h"
#include "common/graph_hold.h"
#include "common/returns.h"
#include "common/streams.h"
#include "layers/guard/block.h"
#include "layers/guard/bound.h"
#include "layers/guard/mapping.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace emm::guard {
namespace {

constexpr size_t most = size_t(1) << 46;

class Manager {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts);
    ~Manager();
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_memory_info(size_t *ret_free, size_t *ret_total) {
        return bound_.tell(ret_free, ret_total);
    }
    emm_status reset();
    emm_status defer_cleanup(uint32_t enter);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status get_stats(emm_stats *ret_stats);
    emm_status reset_peaks();
    emm_status set_access(int32_t, uint32_t) {
        refuse(EMM_E_NOT_SUPPORTED, "layer guard gives other devices no access to its blocks");
    }
    emm_status get_ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);
    emm_status release_ipc_handle(const emm_ipc_handle *) {
        refuse(EMM_E_NOT_OWNED, "layer guard: the IPC handle is not an export of this manager");
    }
    emm_status pause(uint32_t flags, size_t *ret_released);
    emm_status resume(uint32_t) { return EMM_S_IGNORED; } // nothing is paused

private:
    using Blocks = std::map<uint64_t, Block>;
    using Entry = LiveAllocations::Entry;

    bool has_context_finished() noexcept;
    void give_back_unordered() noexcept;
    void refuse_free(emm_deviceptr ptr, size_t size);
    bool note_free(emm_deviceptr ptr, const Caller *by);
    void compare_pad(emm_deviceptr ptr, size_t size) noexcept;
    Block block_at(emm_deviceptr ptr);
    void say_overrun(emm_deviceptr ptr, size_t size, size_t byte);
    void give_back(Entry entry) noexcept;
    void give_back_what_can_go() noexcept;
    void free_addresses(size_t keep) noexcept;
    void drop_all() noexcept;
    void say(const std::string &text) const { host_.log(EMM_LOG_ERROR, text.c_str()); }

    const emm_host &host_;
    const emm_plugin *const below;
    emm_manager *const *const below_managers;
    const CUcontext cuda_context_;
    const uint64_t context_id_;
    const int32_t device_;
    const bool at_end_;
    const size_t quarantine_;
    const GuardDriver driver_;
    PrivateStream stream_; // for writing to the guard's own bytes
    LiveAllocations allocations_;
    GraphHold graphs_;
    Returns returns_;
    std::atomic<int> sections_{0};
    std::atomic<bool> has_more_{false}; // broken_ or put_off_ is not empty
    // Guards the members below; never held over a call of another library.
    std::mutex mutex_;
    Blocks blocks_;      // by address, until their memory goes back
    Blocks quarantined_; // oldest first
    uint64_t quarantines_ = 0;
    std::list<Mapping> broken_;
    LiveAllocations::Allocations put_off_;   // freed in a deferred section
    LiveAllocations::Allocations unordered_; // the whole context must be waited for
    Bound bound_;
};

const emm_option options[] = {
    {"place", "end|begin", "whether a block ends or begins where nothing is mapped",
     EMM_OPTION_CHOICE, 0},
    {"quarantine", "1024", "how many freed blocks keep their addresses", EMM_OPTION_COUNT, 0},
    {nullptr, nullptr, nullptr, 0, 0}};

Manager::Manager(const emm_host &host, const emm_context_info &info,
                 const char *const *option_texts)
    : host_(host), below(info.below), below_managers(info.below_managers),
      cuda_context_(info.cuda_context), context_id_(info.context_id), device_(info.device),
      at_end_(strcmp(emm_option_text(options, option_texts, "place"), "end") == 0),
      quarantine_(strtoull(emm_option_text(options, option_texts, "quarantine"), nullptr, 10)),
      driver_(host), stream_(driver_, cuda_context_, context_id_), bound_(info) {}

// If the wait fails, it is tried once more, because a block in use must not be unmapped.
Manager::~Manager() {
    const RelaxedCapture relaxed(driver_);
    if (driver_.is_alive(cuda_context_, context_id_)) {
        static_cast<void>(has_context_finished() || has_context_finished());
    }
    drop_all();
}

emm_status Manager::memalloc(size_t size, emm_stream, emm_deviceptr *ret_ptr) {
    give_back_what_can_go();
    if (size > most) {
        allocations_.failed();
        refuse(EMM_E_OUT_OF_MEMORY, "layer guard: no device has %zu bytes", size);
    }
    Entry entry = LiveAllocations::make_entry(size);
    Blocks block;
    block[0].size = size;
    block[0].allocated = Caller::here();
    std::list<Mapping> made(1);
    made.front().layout = layout_of(size, at_end_);
    const RelaxedCapture relaxed(driver_);
    try {
        bound_.take(made.front());
        made.front().make(driver_, device_);
        made.front().write_poison(driver_, stream_);
        bound_.note_peak();
    } catch (...) {
        allocations_.failed();
        if (!bound_.undo(made.front(), driver_, stream_)) {
            const std::lock_guard lock(mutex_);
            broken_.splice(broken_.end(), made);
            has_more_ = true;
        }
        throw;
    }
    const emm_deviceptr ptr = made.front().range + made.front().layout.block;
    {
        const std::lock_guard lock(mutex_);
        Blocks::node_type node = block.extract(block.begin());
        node.key() = node.mapped().ptr = ptr;
        blocks_.insert(std::move(node));
    }
    allocations_.add(std::move(entry), ptr);
    *ret_ptr = ptr;
    return EMM_OK;
}

// The live block at `ptr`, or the last block freed there; without an address if there is neither.
Block Manager::block_at(emm_deviceptr ptr) {
    const std::lock_guard lock(mutex_);
    const auto live = blocks_.find(ptr);
    if (live != blocks_.end()) {
        return live->second;
    }
    const auto freed =
        std::find_if(quarantined_.rbegin(), quarantined_.rend(),
                     [&](const Blocks::value_type &each) { return each.second.ptr == ptr; });
    return freed != quarantined_.rend() ? freed->second : Block{};
}

void Manager::refuse_free(emm_deviceptr ptr, size_t size) {
    const Block block = block_at(ptr);
    if (block.ptr) {
        const bool has_size = size != 0 && size != SIZE_MAX; // SIZE_MAX: that of `emm run`
        char begin[64];
        snprintf(begin, sizeof begin, "guard: a wrong free of 0x%llx", ptr);
        say(begin + (has_size ? " with size " + std::to_string(size) : "") + ", by " +
            Caller::here().text() + "; it was allocated by " + block.allocated.text() +
            (block.is_freed ? " and freed by " + block.freed.text() : ""));
    }
    allocations_.refuse_free("layer guard", ptr, size);
}

// Notes that `by` frees the block; NULL takes the note back. Returns whether the block is used on
// other streams too.
bool Manager::note_free(emm_deviceptr ptr, const Caller *by) {
    const std::lock_guard lock(mutex_);
    Block &block = blocks_.find(ptr)->second;
    block.is_freed = by != nullptr;
    block.freed = by ? *by : Caller();
    return block.used_elsewhere;
}

bool Manager::has_context_finished() noexcept {
    const CUresult result = cuda::wait_beside_captures(driver_);
    return result == CUDA_SUCCESS || is_late(result);
}

void Manager::give_back_unordered() noexcept {
    const Returns::Scope returning(returns_);
    LiveAllocations::Allocations waiting;
    {
        const std::lock_guard lock(mutex_);
        waiting.swap(unordered_);
    }
    if (!waiting.empty() && !has_context_finished()) {
        const std::lock_guard lock(mutex_);
        unordered_.merge(waiting);
        return;
    }
    while (!waiting.empty()) {
        give_back(waiting.extract(waiting.begin()));
    }
}

void Manager::compare_pad(emm_deviceptr ptr, size_t size) noexcept {
    std::array<unsigned char, alignment> bytes = {};
    const size_t pad = layout_of(size, at_end_).padded - size;
    if (pad == 0 || !driver_.is_alive(cuda_context_, context_id_) ||
        driver_.cuMemcpyDtoHAsync(bytes.data(), ptr + size, pad, stream_) ||
        (driver_.cuStreamSynchronize(stream_) && driver_.cuStreamSynchronize(stream_))) {
        return;
    }
    const auto wrong = std::find_if(bytes.begin(), bytes.begin() + pad,
                                    [](unsigned char byte) { return byte != poison; });
    if (wrong != bytes.begin() + pad) {
        try {
            say_overrun(ptr, size, static_cast<size_t>(wrong - bytes.begin()) + 1);
        } catch (const std::bad_alloc &) { // without memory there is no report
        }
    }
}

void Manager::say_overrun(emm_deviceptr ptr, size_t size, size_t byte) {
    char begin[128];
    snprintf(begin, sizeof begin,
             "guard: byte %zu behind block 0x%llx of %zu bytes was written; it was allocated by ",
             byte, ptr, size);
    say(begin + block_at(ptr).allocated.text());
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    give_back_what_can_go();
    driver_.expect_own(cuda_context_, stream);
    const Capture capture = capture_of(driver_, stream);
    const RelaxedCapture relaxed(driver_);
    const Caller caller = Caller::here();
    Entry entry = allocations_.take(ptr, size);
    if (entry.empty()) {
        refuse_free(ptr, size);
    }
    const bool used_elsewhere = note_free(ptr, &caller);
    const bool waits = used_elsewhere || stream == EMM_STREAM_UNORDERED || capture.active;
    try {
        if (capture.graph) {
            graphs_.hold(driver_, capture.graph, entry);
        } else if (!waits) {
            driver_.check(driver_.cuStreamSynchronize(stream), "waiting for a block that is freed");
        }
    } catch (...) {
        note_free(ptr, nullptr);
        allocations_.put_back(std::move(entry));
        throw;
    }
    if (!waits || entry.empty()) {
        give_back(std::move(entry));
        return EMM_OK;
    }
    {
        const std::lock_guard lock(mutex_);
        unordered_.insert(std::move(entry));
    }
    if (!capture.active) {
        give_back_unordered();
    }
    return EMM_OK;
}

// Gives back a block that nothing uses any more.
void Manager::give_back(Entry entry) noexcept {
    if (entry.empty()) {
        return;
    }
    if (sections_ != 0) {
        const std::lock_guard lock(mutex_);
        put_off_.insert(std::move(entry));
        has_more_ = true;
        return;
    }
    const emm_deviceptr ptr = entry.key();
    const size_t size = entry.mapped();
    const Layout layout = layout_of(size, at_end_);
    compare_pad(ptr, size);
    if (!is_returned(driver_.cuMemUnmap(ptr - layout.block + layout.mapping, layout.mapped))) {
        allocations_.keep_refused(std::move(entry));
        return;
    }
    allocations_.returned(size);
    {
        const std::lock_guard lock(mutex_);
        bound_.give(layout.mapped);
        Blocks::node_type block = blocks_.extract(ptr);
        block.key() = ++quarantines_;
        quarantined_.insert(std::move(block));
    }
    free_addresses(quarantine_);
}

void Manager::free_addresses(size_t keep) noexcept {
    Blocks refused;
    for (;;) {
        std::unique_lock lock(mutex_);
        if (quarantined_.size() <= keep) {
            quarantined_.merge(refused); // for a later try
            return;
        }
        Blocks::node_type oldest = quarantined_.extract(quarantined_.begin());
        lock.unlock();
        const Block &block = oldest.mapped();
        const Layout layout = layout_of(block.size, at_end_);
        if (!is_returned(driver_.cuMemAddressFree(block.ptr - layout.block, layout.reserved))) {
            refused.insert(std::move(oldest));
        }
    }
}

void Manager::give_back_what_can_go() noexcept {
    const RelaxedCapture relaxed(driver_);
    const Returns::Scope returning(returns_);
    if (sections_ == 0 && has_more_.exchange(false)) {
        std::list<Mapping> broken;
        LiveAllocations::Allocations put_off;
        {
            const std::lock_guard lock(mutex_);
            broken.swap(broken_);
            put_off.swap(put_off_);
        }
        while (!put_off.empty()) {
            give_back(put_off.extract(put_off.begin()));
        }
        broken.remove_if([&](Mapping &each) { return bound_.undo(each, driver_, stream_); });
        if (!broken.empty()) {
            const std::lock_guard lock(mutex_);
            broken_.splice(broken_.end(), broken);
            has_more_ = true;
        }
    }
    give_back(allocations_.take_refused());
    while (graphs_.has_released()) {
        Entry entry = graphs_.take_released();
        const std::lock_guard lock(mutex_);
        unordered_.insert(std::move(entry)); // the graph's last launch may be running
    }
}

// When the program resets the context, it has no more use for the memory.
emm_status Manager::reset() {
    const RelaxedCapture relaxed(driver_);
    drop_all();
    return EMM_OK;
}

// The memory belongs to the device, so it goes back even if the context has died.
void Manager::drop_all() noexcept {
    const int sections = sections_.exchange(0);
    if (driver_.is_alive(cuda_context_, context_id_) && driver_.cuStreamSynchronize(stream_)) {
        driver_.cuStreamSynchronize(stream_); // a second try
    }
    for (Entry entry = graphs_.take_any(); !entry.empty(); entry = graphs_.take_any()) {
        give_back(std::move(entry));
    }
    for (int tries = 0; tries < 2; ++tries) { // no later call may come
        LiveAllocations::Allocations all = allocations_.take_all();
        while (!all.empty()) {
            give_back(all.extract(all.begin()));
        }
        {
            const std::lock_guard lock(mutex_);
            put_off_.merge(unordered_);
            has_more_ = true;
            for (Mapping &each : broken_) {
                each.written = false;
            }
        }
        give_back_what_can_go();
        free_addresses(0);
    }
    sections_ = sections;
}

// A begin that failed below has begun nothing. An end has ended the section even if it failed.
emm_status Manager::defer_cleanup(uint32_t enter) {
    const emm_status status = EMM_BELOW(this, defer_cleanup, enter);
    if (!enter || status >= EMM_OK) {
        sections_ += enter ? 1 : -1;
        give_back_what_can_go();
    }
    return status;
}

// The guard itself caches nothing.
emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    {
        const RelaxedCapture relaxed(driver_);
        give_back_what_can_go();
        give_back_unordered();
    }
    returns_.wait(); // after this trim emm tries a request again
    return EMM_BELOW(this, trim, keep_bytes, ret_released);
}

emm_status Manager::query(emm_deviceptr ptr, emm_block_info *ret_info) {
    const emm_block_info info = allocations_.at(ptr, "layer guard", device_);
    emm_copy_sized(ret_info, &info);
    return EMM_OK;
}

emm_status Manager::record_use(emm_deviceptr ptr, size_t, emm_stream) {
    const emm_block_info info = allocations_.at(ptr, "layer guard", device_); // throws
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(info.base);
    if (block != blocks_.end()) {
        block->second.used_elsewhere = true;
    }
    return EMM_OK;
}

// Device memory is the guard's; pinned memory is that of the plugin below.
emm_status Manager::get_stats(emm_stats *ret_stats) {
    emm_stats under = {}, stats;
    under.struct_size = sizeof under;
    EMM_BELOW(this, get_stats, &under);
    allocations_.fill(stats);
    bound_.fill(stats);
    stats.host_live_bytes = under.host_live_bytes;
    stats.host_reserved_bytes = under.host_reserved_bytes;
    emm_copy_sized(ret_stats, &stats);
    return EMM_OK;
}

// The peaks are the guard's own.
emm_status Manager::reset_peaks() {
    allocations_.reset_peaks();
    bound_.reset_peak();
    return EMM_OK;
}

emm_status Manager::get_ipc_handle(emm_deviceptr, size_t, emm_ipc_handle *) {
    refuse(EMM_E_NOT_SUPPORTED, "layer guard shares its blocks with no other process");
}

emm_status Manager::pause(uint32_t, size_t *) {
    refuse(EMM_E_NOT_SUPPORTED, "layer guard cannot pause: its blocks stay on the device");
}

} // namespace
} // namespace emm::guard

EMM_LAYER_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<emm::guard::Manager>(
        "guard", EMM_VERSION, "Ends each block where nothing is mapped, and reports wrong frees",
        EMM_PLUGIN_NEEDS_CURRENT | EMM_PLUGIN_CAPTURE, emm::guard::options);
    return &table;
}
