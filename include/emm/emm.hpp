/*
 * emm/emm.hpp: C++20 over emm/emm.h, header only: exceptions instead of codes, and emm as the
 * allocator that other libraries ask for. It includes no CUDA header and none of those libraries.
 *
 *   PinnedResource    a std::pmr::memory_resource of pinned host memory
 *   DeviceResource    device memory for cuda::mr, in the names of every CCCL
 *   DeviceAllocator   device memory for Thrust's vectors and temporaries
 *   DeferCleanup      a section in which nothing is returned to the driver
 *
 * What allocates throws; what frees never does: a free that fails is described by emm_last_error().
 */
#ifndef EMM_EMM_HPP
#define EMM_EMM_HPP

#include <emm/emm.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace emm {

// --- errors --------------------------------------------------------------------------------------

// A call failed: its status, the driver's result behind it or 0, and the sentence in what().
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

// Device or host memory has run out. No emm::Error, because allocators have to throw this type.
class OutOfMemory : public std::bad_alloc {
public:
    OutOfMemory(emm_status status, const char *text) : status_(status), text_(text) {}
    emm_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_.what(); }

private:
    emm_status status_;
    std::runtime_error text_; // a text whose copies never throw
};

// Throws what the calling thread's last error says, if `status` is an error. Notices come back.
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

// Records of emm_context_*, which live as long as the process.
inline emm_context *current_context() {
    emm_context *context = nullptr;
    check(emm_context_current(&context));
    return context;
}

inline emm_context *context_from(struct CUctx_st *cuda_context) {
    emm_context *context = nullptr;
    check(emm_context_from(cuda_context, &context));
    return context;
}

inline emm_context *context_for_device(int32_t device) {
    emm_context *context = nullptr;
    check(emm_context_for_device(device, &context));
    return context;
}

// A section as emm_defer_cleanup_begin and _end make it, for as long as the guard lives.
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

// --- allocators for other libraries --------------------------------------------------------------

// What every allocation is aligned to.
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

// Pinned host memory. `flags`: EMM_HOST_*. Freed memory may still be on its way to or from a
// device: nobody gets it before that is done.
class PinnedResource final : public std::pmr::memory_resource {
public:
    explicit PinnedResource(emm_context *context, uint32_t flags = 0)
        : context_(context), flags_(flags) {}

private:
    void *do_allocate(size_t bytes, size_t wanted) override {
        void *host = nullptr;
        detail::check_alignment(wanted);
        check(emm_memhostalloc(context_, bytes == 0 ? 1 : bytes, flags_, &host, nullptr));
        return host;
    }
    void do_deallocate(void *host, size_t bytes, size_t) override {
        emm_memhostfree(context_, host, bytes == 0 ? 1 : bytes, flags_, EMM_STREAM_UNORDERED);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        const auto *pinned = dynamic_cast<const PinnedResource *>(&other);
        return pinned && pinned->context_ == context_ && pinned->flags_ == flags_;
    }

    emm_context *context_;
    uint32_t flags_;
};

// A cudaStream_t, or something that holds one as cuda::stream_ref does.
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

// Device memory of one context for cuda::mr, whose properties the program names, so that this
// header need not know them: emm::DeviceResource<cuda::mr::device_accessible>. It speaks both sets
// of names, those of CCCL before 3.1 (allocate, allocate_async) and later ones (allocate_sync,
// allocate with the stream first). Without a stream, memory may be used anywhere in the context at
// once, and is given out again only when all work that the context held at its free is done.
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
    friend bool operator!=(const DeviceResource &a, const DeviceResource &b) noexcept {
        return a.context_ != b.context_;
    }

private:
    emm_context *context_;
};

// Device memory for Thrust, whose vectors want thrust::device_ptr<T> for `Pointer`:
//
//   thrust::device_vector<int, emm::DeviceAllocator<int, thrust::device_ptr<int>>> keys(n);
//   thrust::sort(thrust::cuda::par(emm::DeviceAllocator<char>{}), keys.begin(), keys.end());
//
// Without arguments it serves the calling thread's current context, to any stream.
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

    friend bool operator==(const DeviceAllocator &a, const DeviceAllocator &b) noexcept {
        return a.context_ == b.context_ && a.stream_ == b.stream_;
    }
    friend bool operator!=(const DeviceAllocator &a, const DeviceAllocator &b) noexcept {
        return !(a == b);
    }

private:
    emm_context *context_;
    emm_stream stream_;
};

} // namespace emm

#endif
