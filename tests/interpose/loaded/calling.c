/* A library that takes device memory while it is loaded. */
#include <dlfcn.h>
#include <stddef.h>

__attribute__((constructor)) static void begin(void) {
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*allocate)(unsigned long long *, size_t) = NULL;
    *(void **)&allocate = driver ? dlsym(driver, "cuMemAlloc_v2") : NULL;
    unsigned long long address = 0;
    if (allocate) {
        allocate(&address, 1 << 20);
    }
}
