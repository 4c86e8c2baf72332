/*
 * emm/emm.hpp: C++20 over emm/emm.h, header only. Exceptions replace status codes, and other
 * libraries can use emm as their allocator. Includes no CUDA header and none of those libraries.
 *
 *   MemoryPointer, MappedMemory, PinnedMemory, ManagedMemory    counted references to memory
 *   PinnedResource    a std::pmr::memory_resource of pinned host memory
 *   DeviceResource    device memory for cuda::mr and RMM, in the names of every CCCL
 *   DeviceAllocator   device memory for Thrust's vectors and temporaries
 *   Export, open_ipc  memory shared between processes
 *   Array, import_array   arrays as the CUDA Array Interface and DLPack describe them
 *   DeferCleanup      a section in which nothing is returned to the driver
 *   StreamRegistration, PressureCallback, EventHook   in force for as long as the object lives
 *
 * Functions that allocate throw. Functions that free never throw: if a free fails,
 * emm_last_error() describes the failure.
 */
#ifndef EMM_EMM_HPP
#define EMM_EMM_HPP

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "emm/emm.hpp needs C++20 (-std=c++20); emm/emm.h serves older C++ and C"
#else

#include <emm/array.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace emm {

// --- errors --------------------------------------------------------------------------------------

// A failed call: its status, the driver's result or 0, and the sentence in what().
class Error : public std::runtime_error {
public:
    Error(emm_status status, int32_t driver_result, const char *text)
        : std::runtime_error(text), status_(status), driver_result_(driver_result) {}
    emm_status status() const noexcept { return status_; }
    int32_t driver_result() const noexcept { return driver_result_; }

private:
    emm_status status_;
    int32_t driver_result_;
};

// Device or host memory has run out. Not an emm::Error: allocators must throw std::bad_alloc.
class OutOfMemory : public std::bad_alloc {
public:
    OutOfMemory(emm_status status, const char *text) : status_(status), text_(text) {}
    emm_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_.what(); }

private:
    emm_status status_;
    std::runtime_error text_; // a text whose copies never throw
};

// If `status` is an error, throws the calling thread's last error. Returns success and notices.
inline emm_status check(emm_status status) {
    if (status >= EMM_OK) [[likely]] {
        return status;
    }
    const emm_error &error = *emm_last_error();
    if (status == EMM_E_OUT_OF_MEMORY || status == EMM_E_OUT_OF_HOST_MEMORY) {
        throw OutOfMemory(status, error.text);
    }
    throw Error(status, error.driver_result, error.text);
}

// --- contexts ------------------------------------------------------------------------------------

namespace detail {

// Calls a function of the C interface, and returns the value of its last argument.
template <class Out, class Function, class... Arguments>
Out made_by(Function function, Arguments... arguments) {
    Out out = {};
    check(function(arguments..., &out));
    return out;
}

// Likewise for a struct that begins with its size.
template <class Struct, class Function, class... Arguments>
Struct told_by(Function function, Arguments... arguments) {
    Struct told = {};
    told.struct_size = sizeof told;
    check(function(arguments..., &told));
    return told;
}

} // namespace detail

// The records of emm_context_*, which live as long as the process.
inline emm_context *current_context() {
    return detail::made_by<emm_context *>(emm_context_current);
}

inline emm_context *context_from(struct CUctx_st *cuda_context) {
    return detail::made_by<emm_context *>(emm_context_from, cuda_context);
}

inline emm_context *context_for_device(int32_t device) {
    return detail::made_by<emm_context *>(emm_context_for_device, device);
}

// The pool `name` of the context's CUDA context (emm_context_named). The first call makes it.
inline emm_context *context_named(emm_context *context, const char *name,
                                  const char *options = nullptr) {
    return detail::made_by<emm_context *>(emm_context_named, context, name, options);
}

inline emm_stats stats(emm_context *context) {
    return detail::told_by<emm_stats>(emm_get_stats, context);
}

// As emm_context_reset_peaks.
inline void reset_peaks(emm_context *context) {
    check(emm_context_reset_peaks(context));
}

// The memory that this process holds of a device (an ordinal), and the device's bound.
inline emm_device_account device_account(int32_t device) {
    return detail::told_by<emm_device_account>(emm_get_device_account, device);
}

// Returns the plugin's cache to the driver, except `keep_bytes`. The result is the bytes returned.
inline size_t trim(emm_context *context, size_t keep_bytes = 0) {
    return detail::made_by<size_t>(emm_trim, context, keep_bytes);
}

// Drops every allocation in all pools of the CUDA context; for a named pool, in that pool alone.
inline void reset(emm_context *context) {
    check(emm_context_reset(context));
}

// As emm_context_pause. The result is the bytes that went back to the driver.
inline size_t pause(emm_context *context, uint32_t flags = EMM_PAUSE_KEEP) {
    return detail::made_by<size_t>(emm_context_pause, context, flags);
}
inline void resume(emm_context *context, uint32_t flags = 0) {
    check(emm_context_resume(context, flags));
}

// As emm_context_read_paused. False: the pool is not paused, and `host` is unchanged.
inline bool read_paused(emm_context *context, emm_deviceptr ptr, size_t size, void *host) {
    return check(emm_context_read_paused(context, ptr, size, host)) == EMM_OK;
}

// As emm_context_set_option.
inline void set_option(emm_context *context, const char *key, const char *text) {
    check(emm_context_set_option(context, key, text));
}

// Pauses until resume() or until the guard ends. If the guard finds no memory at its end, the pool
// stays paused. A pool that was paused before also stays paused.
class Pause {
public:
    explicit Pause(emm_context *context, uint32_t flags = EMM_PAUSE_KEEP) {
        if (check(emm_context_pause(context, flags, &released_)) == EMM_OK) {
            context_ = context;
        }
    }
    ~Pause() {
        if (context_) {
            emm_context_resume(context_, EMM_RESUME_UNDO);
        }
    }
    Pause(const Pause &) = delete;
    Pause &operator=(const Pause &) = delete;

    size_t released() const noexcept { return released_; }
    // If there is no memory, throws and may be called again.
    void resume(uint32_t flags = 0) {
        if (context_) {
            emm::resume(context_, flags | EMM_RESUME_UNDO);
            context_ = nullptr;
        }
    }

private:
    emm_context *context_ = nullptr; // until it is resumed
    size_t released_ = 0;
};

// A deferred section (emm_defer_cleanup_begin and _end) for as long as the guard lives.
class DeferCleanup {
public:
    explicit DeferCleanup(emm_context *context) : context_(context) {
        check(emm_defer_cleanup_begin(context));
    }
    ~DeferCleanup() { emm_defer_cleanup_end(context_); }
    DeferCleanup(const DeferCleanup &) = delete;
    DeferCleanup &operator=(const DeferCleanup &) = delete;

private:
    emm_context *context_;
};

// A name for the thread's work while the guard lives (emm_tag_begin). One thread makes and ends the
// guard. In a forked child, which emm does not serve, it does nothing.
class Tag {
public:
    explicit Tag(const char *name) {
        const emm_status status = emm_tag_begin(name);
        if (status != EMM_E_FORKED) {
            check(status);
        }
    }
    ~Tag() { emm_tag_end(); }
    Tag(const Tag &) = delete;
    Tag &operator=(const Tag &) = delete;
};

// Registers a stream that exists. Destroy this object before the stream.
class StreamRegistration {
public:
    StreamRegistration(emm_context *context, emm_stream stream)
        : context_(context), stream_(stream) {
        check(emm_stream_register(context, stream));
    }
    StreamRegistration(StreamRegistration &&other) noexcept
        : context_(std::exchange(other.context_, nullptr)), stream_(other.stream_) {}
    StreamRegistration &operator=(StreamRegistration &&) = delete;
    ~StreamRegistration() {
        if (context_) {
            emm_stream_retire(context_, stream_);
        }
    }

private:
    emm_context *context_;
    emm_stream stream_;
};

namespace detail {

// Puts the previous value back at its end.
template <class Previous, void (*put_back)(const Previous &)> class Replacement {
public:
    Replacement(Replacement &&other) noexcept
        : previous_(other.previous_), in_force_(std::exchange(other.in_force_, false)) {}
    Replacement &operator=(Replacement &&) = delete;

protected:
    Replacement() noexcept = default;
    ~Replacement() {
        if (in_force_) {
            put_back(previous_);
        }
    }
    Previous previous_ = {};
    bool in_force_ = false;
};

template <class Function> void *address_of(Function &function) noexcept {
    if constexpr (std::is_function_v<Function>) {
        return reinterpret_cast<void *>(&function);
    } else {
        return const_cast<void *>(static_cast<const void *>(std::addressof(function)));
    }
}

inline void put_back_pressure(const emm_pressure_callback_info &previous) {
    emm_set_pressure_callback(previous.callback, previous.user_data);
}
inline void put_back_hook(const emm_event_hook_info &previous) {
    emm_set_event_hook(previous.hook, previous.user_data, nullptr);
}

} // namespace detail

// The next two classes replace a setting of the whole process: end them in the reverse order. The
// function belongs to the caller, and must not throw. The function must outlive the object: calls
// that other threads have begun may still reach it.

// size_t give_back(emm_context *, size_t bytes), as emm_pressure_callback.
class PressureCallback
    : public detail::Replacement<emm_pressure_callback_info, &detail::put_back_pressure> {
public:
    template <class Function>
    requires std::invocable<Function &, emm_context *, size_t>
    explicit PressureCallback(Function &give_back) {
        check(emm_exchange_pressure_callback(
            [](emm_context *context, size_t bytes, void *function) noexcept -> size_t {
                return (*reinterpret_cast<Function *>(function))(context, bytes);
            },
            detail::address_of(give_back), &previous_));
        in_force_ = true;
    }
};

// void hook(const emm_event &), as emm_event_hook.
class EventHook : public detail::Replacement<emm_event_hook_info, &detail::put_back_hook> {
public:
    template <class Function>
    requires std::invocable<Function &, const emm_event &>
    explicit EventHook(Function &hook) {
        check(emm_set_event_hook(
            [](const emm_event *event, void *function) noexcept {
                (*reinterpret_cast<Function *>(function))(*event);
            },
            detail::address_of(hook), &previous_));
        in_force_ = true;
    }
};

// --- memory --------------------------------------------------------------------------------------
//
// NBEP 7's classes over the handles of emm.h, with the rules of those handles. A copy is another
// reference to the same memory; the last reference gives the memory back. An empty object refers to
// no memory.

namespace detail {

// Memory that `make` makes with an owner and its finalizer. The owner shares `keep` until the
// memory is given up.
template <class Make> emm_memory *owned(std::shared_ptr<void> keep, Make make) {
    using Shared = std::shared_ptr<void>;
    std::unique_ptr<Shared> owner(keep ? new Shared(std::move(keep)) : nullptr);
    const emm_finalizer finalize = [](void *shared) { delete static_cast<Shared *>(shared); };
    emm_memory *memory = nullptr;
    check(make(owner.get(), owner ? finalize : nullptr, &memory));
    static_cast<void>(owner.release());
    return memory;
}

} // namespace detail

// The common base of the classes below.
class Memory {
public:
    Memory() noexcept = default;
    Memory(const Memory &other) : handle_(other.handle_), info_(other.info_) {
        if (handle_) {
            check(emm_memory_retain(handle_));
        }
    }
    Memory(Memory &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), info_(std::exchange(other.info_, {})) {}
    Memory &operator=(Memory other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(info_, other.info_);
        return *this;
    }
    ~Memory() { emm_memory_release(handle_); }

    explicit operator bool() const noexcept { return handle_ != nullptr; }
    emm_memory *get() const noexcept { return handle_; }
    // Gives the reference to the caller, who must release it.
    emm_memory *release() noexcept {
        info_ = {};
        return std::exchange(handle_, nullptr);
    }

    emm_context *context() const noexcept { return info_.context; }
    size_t size() const noexcept { return info_.size; }
    uint32_t kind() const noexcept { return info_.kind; }
    // The present info: the state may have changed.
    emm_memory_info info() const {
        return detail::told_by<emm_memory_info>(emm_memory_get_info, handle_);
    }

    // Frees the memory now, even if other handles refer to it.
    void free() { check(emm_memory_free(handle_)); }
    // Names the stream that orders the last free.
    void set_stream(emm_stream stream) { check(emm_memory_set_stream(handle_, stream)); }

protected:
    // Takes over the reference.
    explicit Memory(emm_memory *handle) : handle_(handle) {
        try {
            info_ = info();
        } catch (...) {
            emm_memory_release(handle_);
            throw;
        }
    }

    emm_memory *part(size_t start, size_t stop) const {
        return detail::made_by<emm_memory *>(emm_memory_view, handle_, start, stop);
    }
    void require_device_address() const {
        if (size() != 0 && info_.ptr == 0) {
            throw Error(EMM_E_INVALID_VALUE, 0,
                        "emm: expected memory with a device address, found pinned or external "
                        "memory without one");
        }
    }
    void require_host_address() const {
        if (size() != 0 && !info_.host) {
            throw Error(EMM_E_INVALID_VALUE, 0,
                        "emm: expected memory with a host address, found device memory");
        }
    }
    template <class T> std::span<T> host_span() const {
        return {static_cast<T *>(info_.host), info_.host ? size() / sizeof(T) : 0};
    }

    static emm_memory *hostalloc(emm_context *context, size_t size, uint32_t flags) {
        return detail::made_by<emm_memory *>(emm_memory_hostalloc, context, size, flags);
    }
    static emm_memory *pin(emm_context *context, std::span<std::byte> range, uint32_t flags,
                           std::shared_ptr<void> keep) {
        return detail::owned(std::move(keep), [&](auto... owner) {
            return emm_memory_pin(context, range.data(), range.size(), flags, owner...);
        });
    }

    emm_memory *handle_ = nullptr;
    emm_memory_info info_ = {};
};

// Memory with a device address.
class MemoryPointer : public Memory {
public:
    MemoryPointer() noexcept = default;
    // Takes over a reference of the C interface. Here and below, the constructor refuses memory
    // without an address that the class needs, and gives the reference back.
    explicit MemoryPointer(emm_memory *handle) : Memory(handle) { require_device_address(); }
    MemoryPointer(emm_context *context, size_t size, emm_stream stream = EMM_STREAM_UNORDERED)
        : Memory(detail::made_by<emm_memory *>(emm_memory_alloc, context, size, stream)) {}
    // Memory that emm did not allocate; `keep` is shared until the last reference goes.
    static MemoryPointer wrap(emm_context *context, emm_deviceptr ptr, size_t size,
                              std::shared_ptr<void> keep = {}) {
        return MemoryPointer(detail::owned(std::move(keep), [&](auto... owner) {
            return emm_memory_wrap(context, ptr, nullptr, size, owner...);
        }));
    }

    emm_deviceptr ptr() const noexcept { return info_.ptr; }
    // The address as a pointer, for kernels and libraries that want one.
    template <class T = void> T *data() const noexcept {
        return reinterpret_cast<T *>(static_cast<uintptr_t>(info_.ptr));
    }
    // The bytes [start, stop).
    MemoryPointer view(size_t start, size_t stop) const { return MemoryPointer(part(start, stop)); }
};

// Pinned host memory that a device can use at the address of MemoryPointer.
class MappedMemory : public MemoryPointer {
public:
    MappedMemory() noexcept = default;
    explicit MappedMemory(emm_memory *handle) : MemoryPointer(handle) { require_host_address(); }
    MappedMemory(emm_context *context, size_t size, uint32_t flags = 0)
        : MemoryPointer(hostalloc(context, size, flags | EMM_HOST_MAPPED)) {}
    // Pins memory of the caller's own; `owner` is shared until the memory is unpinned.
    static MappedMemory pin(emm_context *context, std::span<std::byte> range, uint32_t flags = 0,
                            std::shared_ptr<void> owner = {}) {
        return MappedMemory(Memory::pin(context, range, flags | EMM_HOST_MAPPED, std::move(owner)));
    }

    template <class T = std::byte> std::span<T> span() const { return host_span<T>(); }
    MappedMemory view(size_t start, size_t stop) const { return MappedMemory(part(start, stop)); }
};

// Pinned host memory.
class PinnedMemory : public Memory {
public:
    PinnedMemory() noexcept = default;
    explicit PinnedMemory(emm_memory *handle) : Memory(handle) { require_host_address(); }
    PinnedMemory(emm_context *context, size_t size, uint32_t flags = 0)
        : Memory(hostalloc(context, size, flags)) {}
    static PinnedMemory pin(emm_context *context, std::span<std::byte> range, uint32_t flags = 0,
                            std::shared_ptr<void> owner = {}) {
        return PinnedMemory(Memory::pin(context, range, flags, std::move(owner)));
    }

    template <class T = std::byte> std::span<T> span() const { return host_span<T>(); }
    PinnedMemory view(size_t start, size_t stop) const { return PinnedMemory(part(start, stop)); }
};

// Managed memory, at one address everywhere.
class ManagedMemory : public MemoryPointer {
public:
    ManagedMemory() noexcept = default;
    explicit ManagedMemory(emm_memory *handle) : MemoryPointer(handle) { require_host_address(); }
    ManagedMemory(emm_context *context, size_t size, uint32_t flags = EMM_ATTACH_GLOBAL)
        : MemoryPointer(detail::made_by<emm_memory *>(emm_memory_managed, context, size, flags)) {}

    template <class T = std::byte> std::span<T> span() const { return host_span<T>(); }
    ManagedMemory view(size_t start, size_t stop) const { return ManagedMemory(part(start, stop)); }
};

// --- memory of other processes -------------------------------------------------------------------

// An export of device memory, or of the part that a view covers, until this object ends.
class Export {
public:
    explicit Export(const MemoryPointer &memory) : context_(memory.context()) {
        check(emm_memory_export(memory.get(), &handle_));
    }
    Export(Export &&other) noexcept
        : context_(std::exchange(other.context_, nullptr)), handle_(other.handle_) {}
    Export &operator=(Export &&) = delete;
    ~Export() {
        if (context_) {
            emm_release_ipc_handle(context_, &handle_);
        }
    }

    // Plain bytes, for the other process.
    const emm_ipc_handle &handle() const noexcept { return handle_; }
    // The name of the handle, in 64 bytes.
    emm_ipc_name name() const {
        return detail::made_by<emm_ipc_name>(emm_ipc_handle_to_name, &handle_);
    }

private:
    emm_context *context_;
    emm_ipc_handle handle_ = {};
};

// Opens the export of another process; the last reference closes it.
inline MemoryPointer open_ipc(emm_context *context, const emm_ipc_handle &handle) {
    return MemoryPointer(detail::made_by<emm_memory *>(emm_memory_open_ipc, context, &handle));
}
inline MemoryPointer open_ipc(emm_context *context, const emm_ipc_name &name) {
    return open_ipc(context, detail::made_by<emm_ipc_handle>(emm_ipc_name_to_handle, &name));
}

// --- arrays --------------------------------------------------------------------------------------

struct DLPackDeleter {
    template <class Tensor> void operator()(Tensor *tensor) const { tensor->deleter(tensor); }
};

// An array in `memory`, as emm_array_export describes it; the array keeps the memory. `strides` are
// bytes; an array without strides is C-contiguous. The data is ready on `stream`.
class Array {
public:
    Array(MemoryPointer memory, std::string typestr, std::vector<int64_t> shape,
          std::vector<int64_t> strides = {}, uint64_t offset = 0,
          emm_stream stream = EMM_STREAM_UNORDERED)
        : parts_(new Parts{std::move(memory),
                           std::move(typestr),
                           std::move(shape),
                           std::move(strides),
                           offset,
                           {}}) {
        if (!parts_->strides.empty() && parts_->strides.size() != parts_->shape.size()) {
            throw Error(EMM_E_INVALID_VALUE, 0,
                        "emm: expected as many strides as dimensions, or none");
        }
        emm_array &array = parts_->array;
        array.version = 3;
        array.ndim = static_cast<uint32_t>(parts_->shape.size());
        array.shape = parts_->shape.data();
        array.strides = parts_->strides.empty() ? nullptr : parts_->strides.data();
        array.typestr = parts_->typestr.c_str();
        check(emm_array_export(parts_->memory.get(), offset, stream, &array));
    }

    // Valid for as long as this array lives, even if the array is moved.
    const emm_array &get() const noexcept { return parts_->array; }
    const MemoryPointer &memory() const noexcept { return parts_->memory; }
    // For a library that speaks DLPack 1: pass it the result of release(). Needs dlpack/dlpack.h.
    template <class Tensor = DLManagedTensorVersioned>
    std::unique_ptr<Tensor, DLPackDeleter> dlpack(const emm_dlpack_type *type = nullptr) const {
        return std::unique_ptr<Tensor, DLPackDeleter>(detail::made_by<Tensor *>(
            emm_dlpack_export, memory().get(), parts_->offset, &get(), type));
    }

private:
    struct Parts { // the array points to these
        MemoryPointer memory;
        std::string typestr;
        std::vector<int64_t> shape, strides;
        uint64_t offset;
        emm_array array;
    };
    std::unique_ptr<Parts> parts_;
};

struct ImportedArray {
    MemoryPointer memory; // the bytes that the array reaches
    emm_array_layout layout;
};

// The memory of another library's array, for use on `stream`. `keep`, the array's owner, is shared
// until the last reference goes.
inline ImportedArray import_array(emm_context *context, const emm_array &array, emm_stream stream,
                                  std::shared_ptr<void> keep = {}, uint32_t flags = 0) {
    emm_array_layout layout = {};
    layout.struct_size = sizeof layout;
    emm_memory *const memory = detail::owned(std::move(keep), [&](auto... owner) {
        return emm_array_import(context, &array, stream, flags, owner..., &layout);
    });
    return {MemoryPointer(memory), layout};
}

// --- allocators for other libraries --------------------------------------------------------------

// The alignment of every allocation.
inline constexpr size_t alignment = 256;

namespace detail {

inline void check_alignment(size_t wanted) {
    if (wanted > alignment) {
        throw Error(EMM_E_NOT_SUPPORTED, 0, "emm: expected an alignment of at most 256 bytes");
    }
}

inline void *allocate(emm_context *context, size_t bytes, size_t wanted, emm_stream stream) {
    emm_deviceptr ptr = 0;
    check_alignment(wanted);
    check(emm_memalloc(context, bytes, stream, &ptr));
    return reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
}

inline void deallocate(emm_context *context, const volatile void *ptr, size_t bytes,
                       emm_stream stream) noexcept {
    emm_memfree(context, reinterpret_cast<uintptr_t>(ptr), bytes, stream);
}

// Tells cuda::mr that `Resource` has a property.
template <class Resource, class Property> struct Has {
    friend constexpr void get_property(const Resource &, Property) noexcept {}
};

} // namespace detail

// Pinned host memory. `flags`: EMM_HOST_*. A device may still copy from or to freed memory: emm
// hands the memory out again only after that.
class PinnedResource final : public std::pmr::memory_resource {
public:
    explicit PinnedResource(emm_context *context, uint32_t flags = 0)
        : context_(context), flags_(flags) {}

private:
    // Beyond emm's alignment: a larger block, whose address stands just before the result.
    void *do_allocate(size_t bytes, size_t wanted) override {
        void *host = nullptr;
        check(emm_memhostalloc(context_, block_bytes(bytes, wanted), flags_, &host, nullptr));
        if (wanted <= alignment) {
            return host;
        }
        const uintptr_t after = reinterpret_cast<uintptr_t>(host) + sizeof host;
        auto *const aligned = reinterpret_cast<void **>((after + wanted - 1) & ~(wanted - 1));
        aligned[-1] = host;
        return aligned;
    }
    void do_deallocate(void *host, size_t bytes, size_t wanted) override {
        void *const block = wanted <= alignment ? host : static_cast<void **>(host)[-1];
        emm_memhostfree(context_, block, block_bytes(bytes, wanted), flags_, EMM_STREAM_UNORDERED);
    }
    static size_t block_bytes(size_t bytes, size_t wanted) {
        if (wanted <= alignment) {
            return bytes == 0 ? 1 : bytes;
        }
        if (bytes > SIZE_MAX - wanted) {
            throw std::bad_alloc();
        }
        return bytes + wanted; // `wanted` has room for an address
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        const auto *pinned = dynamic_cast<const PinnedResource *>(&other);
        return pinned && pinned->context_ == context_ && pinned->flags_ == flags_;
    }

    emm_context *context_;
    uint32_t flags_;
};

// A cudaStream_t, or an object that holds one, as cuda::stream_ref does.
template <class Stream>
concept StreamLike = std::convertible_to<Stream, emm_stream> || requires(const Stream &stream) {
    { stream.get() } -> std::convertible_to<emm_stream>;
};

template <StreamLike Stream> emm_stream to_stream(const Stream &stream) {
    if constexpr (std::convertible_to<Stream, emm_stream>) {
        return stream;
    } else {
        return stream.get();
    }
}

// Device memory of one context for cuda::mr; the program names the properties. The class has the
// names of CCCL before 3.1 (allocate, allocate_async) and the later names (allocate_sync, allocate
// with the stream first). Memory allocated without a stream may be used anywhere in the context at
// once. Memory freed without a stream is given out again only after all work that the context held
// at the free.
//   #include <cuda/memory_resource> // LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before 3.1
//   emm::DeviceResource<cuda::mr::device_accessible> memory(emm::context_for_device(0));
//   void *block = memory.allocate_async(1 << 20, 256, stream); // a cuda::stream_ref
//   memory.deallocate_async(block, 1 << 20, 256, stream);
// RMM takes this class wherever it takes a resource, on the device of its context. When device
// memory runs out, RMM's failure_callback_resource_adaptor<emm::OutOfMemory> calls its callback.
//   rmm::mr::set_current_device_resource(memory); // ..._resource_ref in RMM before 26.06
template <class... Properties>
class DeviceResource : public detail::Has<DeviceResource<Properties...>, Properties>... {
public:
    explicit DeviceResource(emm_context *context) : context_(context) {}

    emm_context *context() const noexcept { return context_; }

    void *allocate(size_t bytes, size_t wanted = alignment) {
        return detail::allocate(context_, bytes, wanted, EMM_STREAM_UNORDERED);
    }
    void deallocate(void *ptr, size_t bytes, size_t = alignment) noexcept {
        detail::deallocate(context_, ptr, bytes, EMM_STREAM_UNORDERED);
    }
    template <StreamLike Stream>
    void *allocate_async(size_t bytes, size_t wanted, const Stream &stream) {
        return detail::allocate(context_, bytes, wanted, to_stream(stream));
    }
    template <StreamLike Stream>
    void deallocate_async(void *ptr, size_t bytes, size_t, const Stream &stream) noexcept {
        detail::deallocate(context_, ptr, bytes, to_stream(stream));
    }

    void *allocate_sync(size_t bytes, size_t wanted = alignment) { return allocate(bytes, wanted); }
    void deallocate_sync(void *ptr, size_t bytes, size_t = alignment) noexcept {
        deallocate(ptr, bytes);
    }
    template <StreamLike Stream>
    void *allocate(const Stream &stream, size_t bytes, size_t wanted = alignment) {
        return allocate_async(bytes, wanted, stream);
    }
    template <StreamLike Stream>
    void deallocate(const Stream &stream, void *ptr, size_t bytes, size_t = alignment) noexcept {
        detail::deallocate(context_, ptr, bytes, to_stream(stream));
    }

    friend bool operator==(const DeviceResource &a, const DeviceResource &b) noexcept {
        return a.context_ == b.context_;
    }

private:
    emm_context *context_;
};

// Device memory for Thrust. Its vectors want thrust::device_ptr<T> for `Pointer`:
//
//   emm_context *gpu = emm::context_for_device(0); // the context of CUDA's runtime
//   using Allocator = emm::DeviceAllocator<int, thrust::device_ptr<int>>;
//   thrust::device_vector<int, Allocator> keys(n, Allocator(gpu));
//   thrust::sort(thrust::cuda::par(emm::DeviceAllocator<char>(gpu)), keys.begin(), keys.end());
// The default constructor serves the calling thread's current context, on any stream. If the thread
// has no current context, the constructor throws: CUDA's runtime makes one current with its first
// call.
template <class T, class Pointer = T *> class DeviceAllocator {
public:
    using value_type = T;
    using pointer = Pointer;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    template <class U> struct rebind {
        using other = DeviceAllocator<U, typename std::pointer_traits<Pointer>::template rebind<U>>;
    };

    DeviceAllocator() : DeviceAllocator(current_context()) {}
    explicit DeviceAllocator(emm_context *context, emm_stream stream = EMM_STREAM_UNORDERED)
        : context_(context), stream_(stream) {}
    template <class U, class OtherPointer>
    DeviceAllocator(const DeviceAllocator<U, OtherPointer> &other) noexcept
        : context_(other.context()), stream_(other.stream()) {}

    emm_context *context() const noexcept { return context_; }
    emm_stream stream() const noexcept { return stream_; }

    pointer allocate(size_type count) {
        if (count > std::numeric_limits<size_type>::max() / sizeof(T)) {
            throw std::bad_array_new_length();
        }
        return pointer(
            static_cast<T *>(detail::allocate(context_, count * sizeof(T), alignof(T), stream_)));
    }
    void deallocate(pointer ptr, size_type count) noexcept {
        if constexpr (std::is_pointer_v<pointer>) {
            detail::deallocate(context_, ptr, count * sizeof(T), stream_);
        } else {
            detail::deallocate(context_, ptr.get(), count * sizeof(T), stream_);
        }
    }

    template <class U, class OtherPointer>
    bool operator==(const DeviceAllocator<U, OtherPointer> &other) const noexcept {
        return context_ == other.context() && stream_ == other.stream();
    }

private:
    emm_context *context_;
    emm_stream stream_;
};

} // namespace emm

#endif /* C++20 */
#endif
