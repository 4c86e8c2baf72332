// A memory manager for emm in C++. It gives out memory of cuMemAlloc, with sizes rounded up by the
// option `granule`. It knows its live blocks, so it can refuse a wrong free, describe an address,
// and give everything up in the end. emm/plugin.h is the contract. emm::make_plugin makes the
// table: members named after a slot fill the slot, and an exception becomes a status.
#include <emm/plugin.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace {

// CUresult is an int; with these types, cuda.h is not needed.
using MemAlloc = int (*)(emm_deviceptr *ret_ptr, size_t size);
using MemFree = int (*)(emm_deviceptr ptr);
using ExchangeMode = int (*)(int *mode);
using IsCapturing = int (*)(emm_stream stream, int *ret_status);
using GetId = int (*)(void *cuda_context, unsigned long long *ret_id);
constexpr int success = 0, out_of_memory = 2, deinitialized = 4, capture_implicit = 906;

// While it lives, this thread's driver calls invalidate no capture of any stream.
class Relaxed {
public:
    explicit Relaxed(ExchangeMode exchange) : exchange_(exchange), changed_(change() == success) {}
    ~Relaxed() {
        if (changed_) {
            change();
        }
    }
    Relaxed(const Relaxed &) = delete;
    Relaxed &operator=(const Relaxed &) = delete;

private:
    // If the exchange fails, it is tried once more, because an unwanted mode would stay with the
    // thread.
    int change() {
        const int result = exchange_(&mode_);
        return result == success ? result : exchange_(&mode_);
    }

    ExchangeMode exchange_;
    int mode_ = 2;
    bool changed_;
};

constexpr emm_option options[] = {
    {"granule", "512|64KiB|2MiB", "sizes are rounded up to a multiple", EMM_OPTION_CHOICE, 0},
    {nullptr, nullptr, nullptr, 0, 0}};

// Sizes by address; a node is one allocation.
using Blocks = std::map<emm_deviceptr, size_t>;

// The live blocks. The manager and its pending frees share them, because a free may run while the
// manager is being destroyed. The last owner gives up what is still live.
struct Memory {
    Memory(const emm_host &the_host, const emm_context_info &info)
        : host(the_host), cuda_context(info.cuda_context), context_id(info.context_id),
          get_id(reinterpret_cast<GetId>(host.driver("cuCtxGetId", 12000))),
          mem_free(reinterpret_cast<MemFree>(host.driver("cuMemFree", 12000))),
          exchange(reinterpret_cast<ExchangeMode>(
              host.driver("cuThreadExchangeStreamCaptureMode", 12000))) {}
    ~Memory() {
        for (int tries = 0; tries < 2; ++tries) { // no later call may come
            for (Blocks all = std::exchange(live, {}); !all.empty();) {
                free(all.extract(all.begin()), what_to_do());
            }
        }
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    void add(Blocks::node_type block) {
        const std::lock_guard<std::mutex> lock(mutex);
        live.insert(std::move(block));
    }

    // With EMM_DEFERRED_DROP the address is not ours any more. A block that the driver refuses to
    // take back is live again.
    emm_status free(Blocks::node_type block, uint32_t what) {
        const Relaxed relaxed(exchange);
        const emm_deviceptr ptr = block.key();
        const int result = what == EMM_DEFERRED_RUN ? mem_free(ptr) : success;
        if (result == success || result == deinitialized) {
            return EMM_OK;
        }
        add(std::move(block));
        return emm_failf(&host, EMM_E_DRIVER, result, "cuMemFree of 0x%llx failed: error %d", ptr,
                         result);
    }

    // Addresses of a dead context may belong to another context, so they are dropped.
    uint32_t what_to_do() const {
        unsigned long long id = 0;
        const bool known =
            get_id(cuda_context, &id) == success || get_id(cuda_context, &id) == success;
        return known && id == context_id ? EMM_DEFERRED_RUN : EMM_DEFERRED_DROP;
    }

    const emm_host &host;
    void *const cuda_context;
    const uint64_t context_id;
    const GetId get_id;
    const MemFree mem_free;
    const ExchangeMode exchange;
    std::mutex mutex; // guards `live`; never held over a driver call
    Blocks live;
};

struct PendingFree {
    std::shared_ptr<Memory> memory;
    Blocks::node_type block;

    static emm_status run(void *argument, uint32_t what) {
        const std::unique_ptr<PendingFree> self(static_cast<PendingFree *>(argument));
        return self->memory->free(std::move(self->block), what);
    }
};

class Manager {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *option_texts)
        : host_(host), context_(info.context), device_(info.device),
          memory_(std::make_shared<Memory>(host, info)),
          mem_alloc_(reinterpret_cast<MemAlloc>(host.driver("cuMemAlloc", 12000))),
          is_capturing_(reinterpret_cast<IsCapturing>(host.driver("cuStreamIsCapturing", 12000))) {
        if (!memory_->get_id || !mem_alloc_ || !memory_->mem_free || !memory_->exchange ||
            !is_capturing_) {
            throw emm::PluginError(EMM_E_NO_DRIVER, 0,
                                   "this driver lacks a function that the manager calls");
        }
        emm_parse_size(emm_option_text(options, option_texts, "granule"), &granule_);
    }

    // `stream` does not matter: any stream may use fresh memory at once, and cuMemFree waits for
    // all of them.
    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
        refuse_capture(stream);
        const size_t rounded = round_up(size);
        Blocks one{{0, rounded}}; // made first, so that nothing can fail after cuMemAlloc
        auto block = one.extract(one.begin());
        const Relaxed relaxed(memory_->exchange);
        const int result = rounded < size ? out_of_memory : mem_alloc_(&block.key(), rounded);
        if (result != success) {
            return emm_failf(&host_, result == out_of_memory ? EMM_E_OUT_OF_MEMORY : EMM_E_DRIVER,
                             result, "cuMemAlloc of %zu bytes failed: error %d", rounded, result);
        }
        *ret_ptr = block.key();
        memory_->add(std::move(block));
        return EMM_OK;
    }

    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
        refuse_capture(stream);
        return give_back(take(ptr, size));
    }

    emm_status query(emm_deviceptr ptr, emm_block_info *ret_info) {
        const std::lock_guard<std::mutex> lock(memory_->mutex);
        auto block = memory_->live.upper_bound(ptr);
        if (block == memory_->live.begin() || ptr - (--block)->first >= block->second) {
            return emm_failf(&host_, EMM_E_NOT_OWNED, 0,
                             "no live allocation of this manager is at 0x%llx", ptr);
        }
        const emm_block_info info = {sizeof info,   EMM_KIND_DEVICE, block->first,
                                     block->second, device_,         0};
        emm_copy_sized(ret_info, &info);
        return EMM_OK;
    }

private:
    size_t round_up(size_t size) const { return (size + granule_ - 1) / granule_ * granule_; }

    // Takes the block at `ptr` out of the live ones.
    Blocks::node_type take(emm_deviceptr ptr, size_t size) {
        char text[96];
        const std::lock_guard<std::mutex> lock(memory_->mutex);
        const auto found = memory_->live.find(ptr);
        if (found == memory_->live.end()) {
            snprintf(text, sizeof text, "no live allocation of this manager is at 0x%llx", ptr);
            throw emm::PluginError(EMM_E_NOT_OWNED, 0, text);
        }
        if (size != 0 && round_up(size) != found->second) {
            snprintf(text, sizeof text, "0x%llx was not allocated with %zu bytes", ptr, size);
            throw emm::PluginError(EMM_E_INVALID_VALUE, 0, text);
        }
        return memory_->live.extract(found);
    }

    // A graph uses its memory at every launch, long after the free that was captured. Only a plugin
    // that holds the memory until the graph is gone, as passthrough does, can serve a stream that
    // captures. (The legacy stream counts as capturing while a stream that waits for it captures.)
    void refuse_capture(emm_stream stream) const {
        int status = 0;
        const int result =
            stream == EMM_STREAM_UNORDERED ? success : is_capturing_(stream, &status);
        if (result == capture_implicit || (result == success && status != 0)) {
            throw emm::PluginError(EMM_E_CAPTURING, 0,
                                   "the stream is capturing, which template-cpp cannot serve");
        }
        // An error must not count as "no capture".
        if (result != success && result != deinitialized) {
            throw emm::PluginError(EMM_E_DRIVER, result, "cuStreamIsCapturing failed");
        }
    }

    // If the context still lives, emm's queue of pending deallocations frees the block when it is
    // flushed. Without host memory for an entry, the block is freed at once.
    emm_status give_back(Blocks::node_type block) {
        const size_t size = block.mapped();
        std::unique_ptr<PendingFree> queued(new (std::nothrow) PendingFree{memory_, {}});
        if (queued) {
            queued->block = std::move(block);
            if (host_.defer(context_, &PendingFree::run, queued.get(), size) == EMM_OK) {
                queued.release(); // the queue owns it from here on
                return EMM_OK;
            }
            block = std::move(queued->block);
        }
        return memory_->free(std::move(block), memory_->what_to_do());
    }

    const emm_host &host_;
    emm_context *context_;
    int32_t device_;
    std::shared_ptr<Memory> memory_;
    MemAlloc mem_alloc_;
    IsCapturing is_capturing_;
    uint64_t granule_ = 512;
};

} // namespace

EMM_PLUGIN_ENTRY(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<Manager>(
        "template-cpp", "0.1", "cuMemAlloc with rounded sizes", EMM_PLUGIN_NEEDS_CURRENT, options);
    return &table;
}
