// emm behind RMM, without RMM's headers: only functions that librmm exports are used, by the
// mangled names of their declarations. A name tells the types of a function's arguments, and its
// namespaces tell the versions of RMM's and CCCL's binary interfaces. So a librmm whose functions
// are different does not have these names.
#include "bridge.h"
#include "exceptions.h"

#include <dlfcn.h>
#include <functional>
#include <new>
#include <string>
#include <typeinfo>

using namespace emm;

namespace {

// cuda::stream_ref and rmm::cuda_stream_view are passed as their only member, a pointer.
using Allocate = std::function<void *(size_t bytes, emm_stream stream, void *served)>;
using Deallocate = std::function<void(void *ptr, size_t bytes, emm_stream stream, void *served)>;
using Constructor = void (*)(void *self, Allocate, Deallocate, void *, void *);

// The end of the constructor's name, by how a release passes the stream.
constexpr const char *constructors[] = {
    // 26.10: cuda::stream_ref
    "2mr24callback_memory_resourceC1ESt8functionIFPvmN4cuda3__410stream_refES4_EES3_IFvS4_mS7_S4_"
    "EES4_S4_",
    // 26.08: rmm::cuda_stream_view
    "2mr24callback_memory_resourceC1ESt8functionIFPvmNS0_16cuda_stream_viewES4_EES3_IFvS4_mS5_S4_"
    "EES4_S4_",
    // 26.06: the same, in a namespace without a version
    "2mr24callback_memory_resourceC1ESt8functionIFPvmNS_16cuda_stream_viewES3_EES2_IFvS3_mS4_S3_"
    "EES3_S3_",
};

// A function or object of a library, or of its dependencies.
template <class T> T find(void *library, const std::string &name) {
    return reinterpret_cast<T>(dlsym(library, name.c_str()));
}

// One of RMM's exceptions. `type` is NULL if the library lacks it.
struct Exception {
    void (*construct)(void *self, const char *text);
    void (*destroy)(void *self);
    std::type_info *type;
};

Exception find_exception(void *library, const std::string &name) {
    const Exception found = {
        find<void (*)(void *, const char *)>(library, "_ZN" + name + "C1EPKc"),
        find<void (*)(void *)>(library, "_ZN" + name + "D1Ev"),
        find<std::type_info *>(library, "_ZTIN" + name + "E"),
    };
    return found.construct && found.destroy ? found : Exception{};
}

// The functions of one librmm.
struct Rmm {
    Constructor construct = nullptr;
    Exception out_of_memory = {}, bad_alloc = {};
    bridge::ExceptionRuntime runtime;

    bool complete() const {
        return construct && out_of_memory.type && bad_alloc.type && runtime.complete();
    }
};

Rmm find_in_namespace(void *library, const std::string &scope) {
    Rmm rmm;
    for (const char *const constructor : constructors) {
        if (!rmm.construct) {
            rmm.construct = find<Constructor>(library, "_ZN" + scope + constructor);
        }
    }
    rmm.out_of_memory = find_exception(library, scope + "13out_of_memory");
    rmm.bad_alloc = find_exception(library, scope + "9bad_alloc");
    rmm.runtime = bridge::find_exception_runtime(library);
    return rmm;
}

// RMM 26.08 began to put its version into its namespace: rmm::_RMM_26_8.
Rmm find_rmm(void *library, int major, int minor) {
    const std::string version = "_RMM_" + std::to_string(major) + "_" + std::to_string(minor);
    const Rmm rmm = find_in_namespace(library, "3rmm" + std::to_string(version.size()) + version);
    return rmm.complete() ? rmm : find_in_namespace(library, "3rmm");
}

// The parameter of a resource's callbacks.
struct Served {
    emm_context *context;
    Rmm rmm;
};

// More than any exception of RMM's takes: a std::bad_alloc with a std::string.
constexpr size_t exception_room = 256;

[[noreturn]] void throw_from(const Rmm &rmm, bool out_of_memory) {
    const Exception &exception = out_of_memory ? rmm.out_of_memory : rmm.bad_alloc;
    void *const error = rmm.runtime.allocate(exception_room);
    exception.construct(error, emm_last_error()->text);
    rmm.runtime.raise(error, exception.type, exception.destroy);
    __builtin_unreachable();
}

void *serve_allocation(size_t bytes, emm_stream stream, void *served) {
    const auto &[context, rmm] = *static_cast<const Served *>(served);
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, bytes, stream, &ptr);
    if (status < EMM_OK) {
        throw_from(rmm, status == EMM_E_OUT_OF_MEMORY);
    }
    return reinterpret_cast<void *>(static_cast<uintptr_t>(ptr));
}

void serve_free(void *ptr, size_t bytes, emm_stream stream, void *served) {
    emm_memfree(static_cast<const Served *>(served)->context, reinterpret_cast<uintptr_t>(ptr),
                bytes, stream);
}

// Pinned memory may be used at once, on any stream.
void *serve_pinned_allocation(size_t bytes, emm_stream, void *served) {
    const auto &[context, rmm] = *static_cast<const Served *>(served);
    void *host = nullptr;
    const emm_status status = emm_memhostalloc(context, bytes, 0, &host, nullptr);
    if (status < EMM_OK) {
        throw_from(rmm, status == EMM_E_OUT_OF_HOST_MEMORY);
    }
    return host;
}

void serve_pinned_free(void *host, size_t bytes, emm_stream stream, void *served) {
    emm_memhostfree(static_cast<const Served *>(served)->context, host, bytes, 0, stream);
}

emm_status serve(void *resource, emm_context *context, void *library, int major, int minor,
                 const Allocate &allocate, const Deallocate &deallocate) {
    emm_context_info info = {};
    info.struct_size = sizeof info;
    const emm_status status = emm_context_get_info(context, &info);
    if (status < EMM_OK) {
        return status;
    }
    try {
        const Rmm rmm = find_rmm(library, major, minor);
        if (!rmm.complete()) {
            return EMM_E_NOT_SUPPORTED;
        }
        auto *const served = new Served{context, rmm};
        rmm.construct(resource, allocate, deallocate, served, served);
        return EMM_OK;
    } catch (const std::bad_alloc &) {
        return EMM_E_OUT_OF_HOST_MEMORY;
    }
}

} // namespace

emm_status emm_rmm_serve(void *resource, emm_context *context, void *library, int major,
                         int minor) {
    return serve(resource, context, library, major, minor, serve_allocation, serve_free);
}

emm_status emm_rmm_serve_pinned(void *resource, emm_context *context, void *library, int major,
                                int minor) {
    return serve(resource, context, library, major, minor, serve_pinned_allocation,
                 serve_pinned_free);
}
