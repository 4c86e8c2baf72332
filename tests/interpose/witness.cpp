// A driver that reports its callers: a line on standard error for each lookup, with the file of the
// call. It passes lookups on to the driver in WITNESS_DRIVER.
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <dlfcn.h>

#undef cuGetProcAddress

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

template <class Function> Function *entry(Function &, const char *name) {
    static void *const driver = dlopen(std::getenv("WITNESS_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function *>(driver ? dlsym(driver, name) : nullptr);
}

void tell(const char *name, void *return_address) {
    Dl_info caller = {};
    const bool known = dladdr(return_address, &caller) != 0;
    std::fprintf(stderr, "witness: %s for %s\n", name, known ? caller.dli_fname : "unknown");
}

} // namespace

EXPORT CUresult cuInit(unsigned flags) {
    tell("cuInit", __builtin_return_address(0));
    return entry(cuInit, "cuInit")(flags);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    tell("cuDriverGetVersion", __builtin_return_address(0));
    return entry(cuDriverGetVersion, "cuDriverGetVersion")(version);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
    tell(name, __builtin_return_address(0));
    return entry(cuGetProcAddress_v2, "cuGetProcAddress_v2")(name, found, version, flags, status);
}

EXPORT CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags) {
    tell(name, __builtin_return_address(0));
    return entry(cuGetProcAddress_v2, "cuGetProcAddress_v2")(name, found, version, flags, nullptr);
}
