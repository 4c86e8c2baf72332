#pragma once

#include "core/memory/memory.h"

#include <atomic>

namespace emm::core {

// An export of another process that is open here. lib/sharing implements it.
class Import {
public:
    // Ends one opening; the last end closes the exporter's memory here.
    virtual emm_status close() noexcept = 0;

protected:
    ~Import() = default;
};

// How the memory is given back.
enum class Deallocator : uint8_t {
    none,
    memfree,
    memhostfree,
    memunpin,
    memfreemanaged,
    close_import
};

} // namespace emm::core

// A counted reference. A view has a parent, which is never itself a view, and no deallocator.
struct emm_memory {
    std::atomic<uint32_t> references{1};
    std::atomic<bool> freed{false};
    std::atomic<uint32_t> exports{0};
    emm::core::Deallocator deallocator = emm::core::Deallocator::none;
    uint8_t kind = 0;
    uint32_t flags = 0;
    std::atomic<uint32_t> stream_thread{0}; // the thread whose EMM_STREAM_PER_THREAD `stream` is
    std::atomic<emm_stream> stream{EMM_STREAM_UNORDERED};
    emm_context *context = nullptr;
    uint64_t epoch = 0;
    emm_deviceptr ptr = 0;
    void *host = nullptr;
    size_t size = 0;
    void *owner = nullptr;
    emm_finalizer finalizer = nullptr;
    emm_memory *parent = nullptr;
    emm::core::Import *import = nullptr;
    emm_memory *next = nullptr; // in the context's list of unfinished handles
};

// The calls of emm.h that take or make a handle; arguments have been checked.
namespace emm::core {

// EMM_OK if the context serves. Waits for the end of a reset under way.
emm_status admit_or_wait(emm_context &context) noexcept;

emm_status make_device(emm_context &context, size_t size, emm_stream stream,
                       emm_memory **ret_memory, EMM_CALLER);
emm_status make_host(emm_context &context, size_t size, uint32_t flags, emm_memory **ret_memory,
                     EMM_CALLER);
emm_status make_pinned(emm_context &context, void *host, size_t size, uint32_t flags, void *owner,
                       emm_finalizer finalizer, emm_memory **ret_memory, EMM_CALLER) noexcept;
emm_status make_managed(emm_context &context, size_t size, uint32_t flags, emm_memory **ret_memory,
                        EMM_CALLER) noexcept;
emm_status make_external(emm_context &context, emm_deviceptr ptr, void *host, size_t size,
                         void *owner, emm_finalizer finalizer, emm_memory **ret_memory) noexcept;
// A handle to an export of another process: `open` sets its address and its import.
emm_status make_import(emm_context &context, const emm_ipc_handle &handle,
                       emm_status (*open)(emm_memory &made, const emm_ipc_handle &handle),
                       emm_memory **ret_memory);
emm_status make_view(emm_memory &memory, size_t start, size_t stop, emm_memory **ret_view) noexcept;

// Calls the finalizers that waited for a reset or retirement to give up the handles' memory.
void finalize_dropped(emm_context &context) noexcept;

emm_status retain(emm_memory &memory) noexcept;
emm_status release(emm_memory &memory, EMM_CALLER);
emm_status free_now(emm_memory &memory, EMM_CALLER);
emm_status set_stream(emm_memory &memory, emm_stream stream) noexcept;
emm_status describe(const emm_memory &memory, emm_memory_info *ret_info) noexcept;

} // namespace emm::core
