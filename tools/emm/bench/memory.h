#pragma once

#include "bench/team.h"
#include "driver.h"
#include "problem.h"

#include <emm/emm.h>

#include <cstddef>
#include <cuda.h>
#include <memory>

namespace emm::tool {

// Ways to get memory, all of one shape, so that every case's loop is compiled for each: allocate
// returns an address, release takes it back, and each throws on failure.

[[noreturn]] void throw_last_problem();
[[noreturn]] void throw_cuda(CUresult result, const char *call);
[[noreturn]] void throw_no_memory(const char *function);

inline void expect(emm_status status) {
    if (__builtin_expect(status < 0, 0)) {
        throw_last_problem();
    }
}

inline void expect(CUresult result, const char *call) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        throw_cuda(result, call);
    }
}

struct PluginMemory {
    using Address = emm_deviceptr;
    emm_context *context = nullptr;
    emm_stream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(emm_memalloc(context, size, stream, &address));
        return address;
    }
    void release(Address address, size_t size) const {
        expect(emm_memfree(context, address, size, stream));
    }
};

// Uses the current context, as a library without a context of its own does.
struct CurrentMemory {
    using Address = emm_deviceptr;
    emm_stream stream = nullptr;

    static emm_context *context() {
        emm_context *current;
        expect(emm_context_current(&current));
        return current;
    }
    Address allocate(size_t size) const { return PluginMemory{context(), stream}.allocate(size); }
    void release(Address address, size_t size) const {
        PluginMemory{context(), stream}.release(address, size);
    }
};

// Reference-counted handles.
struct HandleMemory {
    using Address = emm_memory *;
    emm_context *context = nullptr;
    emm_stream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(emm_memory_alloc(context, size, stream, &address));
        return address;
    }
    void release(Address address, size_t) const { expect(emm_memory_release(address)); }
};

struct PinnedMemory {
    using Address = void *;
    emm_context *context = nullptr;
    emm_stream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(emm_memhostalloc(context, size, 0, &address, nullptr));
        return address;
    }
    void release(Address address, size_t size) const {
        expect(emm_memhostfree(context, address, size, 0, stream));
    }
};

// A plugin's own functions, with no host in between.
struct BareMemory {
    using Address = emm_deviceptr;
    emm_manager *manager = nullptr;
    decltype(emm_plugin::memalloc) memalloc = nullptr;
    decltype(emm_plugin::memfree) memfree = nullptr;
    emm_stream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(memalloc(manager, size, stream, &address));
        return address;
    }
    void release(Address address, size_t size) const {
        expect(memfree(manager, address, size, stream));
    }
};

// malloc and free, of the C library or another.
struct LibraryMemory {
    using Address = void *;
    void *(*allocate_function)(size_t) = nullptr;
    void (*release_function)(void *) = nullptr;

    Address allocate(size_t size) const {
        Address address = allocate_function(size);
        if (__builtin_expect(!address, 0)) {
            throw_no_memory("malloc");
        }
        return address;
    }
    void release(Address address, size_t) const { release_function(address); }
};

struct DriverMemory {
    using Address = CUdeviceptr;
    decltype(&::cuMemAlloc) allocate_function = nullptr;
    decltype(&::cuMemFree) release_function = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(allocate_function(&address, size), "cuMemAlloc");
        return address;
    }
    void release(Address address, size_t) const { expect(release_function(address), "cuMemFree"); }
};

struct DriverAsyncMemory {
    using Address = CUdeviceptr;
    decltype(&::cuMemAllocAsync) allocate_function = nullptr;
    decltype(&::cuMemFreeAsync) release_function = nullptr;
    CUstream stream = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(allocate_function(&address, size, stream), "cuMemAllocAsync");
        return address;
    }
    void release(Address address, size_t) const {
        expect(release_function(address, stream), "cuMemFreeAsync");
    }
};

struct DriverHostMemory {
    using Address = void *;
    decltype(&::cuMemHostAlloc) allocate_function = nullptr;
    decltype(&::cuMemFreeHost) release_function = nullptr;

    Address allocate(size_t size) const {
        Address address;
        expect(allocate_function(&address, size, 0), "cuMemHostAlloc");
        return address;
    }
    void release(Address address, size_t) const {
        expect(release_function(address), "cuMemFreeHost");
    }
};

// A non-blocking stream; registered with emm if `context` is given.
class Stream {
public:
    explicit Stream(emm_context *context);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    CUstream get() const { return stream_; }

private:
    emm_context *context_;
    CUstream stream_ = nullptr;
};

// A work and the stream that it uses.
class StreamWork : public Work {
public:
    StreamWork(std::unique_ptr<Stream> stream, std::unique_ptr<Work> work)
        : stream_(std::move(stream)), work_(std::move(work)) {}
    void run(uint64_t pairs) override { work_->run(pairs); }
    void clean_up() override { work_->clean_up(); }

private:
    std::unique_ptr<Stream> stream_;
    std::unique_ptr<Work> work_; // goes first
};

} // namespace emm::tool
