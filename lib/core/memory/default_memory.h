#pragma once

#include <emm/emm.h>

#include <atomic>
#include <map>
#include <mutex>

namespace emm::core {

// Serves the slots that a plugin leaves NULL: pinned, registered and managed memory of one context,
// straight from the driver. A registry lets a reset drop all blocks, and refuses stale frees. NBEP
// 7's HostOnlyCUDAMemoryManager.
class DefaultMemory {
public:
    explicit DefaultMemory(emm_context &context) : context_(context) {}

    emm_status host_alloc(size_t size, uint32_t flags, void **ret_host, emm_deviceptr *ret_device);
    emm_status host_free(void *host, size_t size, uint32_t flags, emm_stream stream);
    emm_status pin(void *host, size_t size, uint32_t flags, emm_deviceptr *ret_device);
    emm_status unpin(void *host, size_t size);
    emm_status alloc_managed(size_t size, uint32_t flags, emm_deviceptr *ret_ptr);
    emm_status free_managed(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status memory_info(size_t *ret_free, size_t *ret_total);
    emm_status ipc_handle(emm_deviceptr ptr, size_t size, emm_ipc_handle *ret_handle);

    // Tries once more to free what the driver has refused to free.
    void retry_all() noexcept;

    // Gives all memory back to the driver; if the context has died, forgets the memory.
    void release_all() noexcept;

    // If release_all could not unpin the range, tries once more. False: the range is still pinned.
    bool finish_unpin(void *host) noexcept;

    uint64_t pinned_bytes() const;       // live
    uint64_t freed_pinned_bytes() const; // freed by the program, and not yet by the driver

private:
    enum class Kind { pinned, registered, managed };
    struct Block {
        Kind kind;
        size_t size;
        uint32_t flags = 0;         // of pinned memory
        bool is_everywhere = false; // work of any context may still use the freed block
    };
    using Live = std::map<uint64_t, Block>; // by address: host and device addresses never coincide
    struct Pending;

    static emm_status release_pending(void *argument, uint32_t what);

    static uint64_t pinned_size(const Block &block) {
        return block.kind == Kind::pinned ? block.size : 0;
    }
    static uint64_t pinned_size(const Live &blocks);
    static Live::node_type make_node(const Block &block);
    emm_status give(Live::node_type block, uint32_t flags, emm_deviceptr *ret_device);
    emm_status take(uint64_t address, Kind kind, size_t size, Live::node_type *ret_block,
                    uint32_t flags = 0);
    void keep(Live::node_type block, Live &where) noexcept;
    emm_status free(uint64_t address, Kind kind, size_t size, uint32_t flags, emm_stream stream);
    emm_status refuse_capturing(emm_stream stream) const;
    void retry_one() noexcept;
    emm_status release_later(Live::node_type block, Live &otherwise);
    emm_status release_or_keep(Live::node_type block, Live &otherwise) noexcept;
    emm_status release_now(uint64_t address, const Block &block) const;
    emm_status device_address(void *host, uint32_t flags, emm_deviceptr *ret_device) const;

    emm_context &context_;
    mutable std::mutex mutex_;
    Live live_;
    Live refused_;                           // frees that the driver refused, to be tried again
    std::atomic<uint64_t> queued_pinned_{0}; // bytes of pinned memory whose free waits
};

// From its first manager on, a context has a DefaultMemory, permanently.
void make_defaults(emm_context &context);
DefaultMemory &defaults_of(emm_context &context) noexcept;
void release_defaults(emm_context &context) noexcept; // all its memory, if there is a DefaultMemory

// For a retirement. If portable memory was ever given out, waits for the context's work, because
// other contexts wait for that work only while the context exists.
void finish_uses_of_portable(const emm_context &context) noexcept;

// The table from which the loader fills empty slots; its functions take a DefaultMemory for `self`.
const emm_plugin &default_slots();

} // namespace emm::core
