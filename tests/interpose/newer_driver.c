// Stands for a driver that is newer than emm, or one whose cuGetProcAddress gives functions of its
// own. It has no more than newer.c asks for.
#include <string.h>

int cuMemAlloc_v2(void **ret, size_t bytes) {
    *ret = (void *)bytes;
    return 0;
}

static int with_flags(void **ret, size_t bytes, unsigned flags, unsigned *ret_flags) {
    *ret_flags = flags;
    return cuMemAlloc_v2(ret, bytes);
}

int cuMemFree_v2(void *block) {
    return block == NULL;
}

// The function that cuGetProcAddress gives in place of the export.
static int free_inside(void *block) {
    return cuMemFree_v2(block);
}

int cuMemAllocAsync(void **ret, size_t bytes, void *stream) {
    return cuMemAlloc_v2(ret, stream ? bytes : 0);
}

int cuMemAllocAsync_ptsz(void **ret, size_t bytes, void *stream) {
    return cuMemAllocAsync(ret, bytes, stream);
}

int cuMulticastBindMem(void) {
    return 1;
}

typedef void (*Function)(void);

static Function find(const char *name, int version, int per_thread) {
    if (strcmp(name, "cuMemAlloc") == 0) {
        return version < 14000 ? (Function)&cuMemAlloc_v2 : (Function)&with_flags;
    }
    if (strcmp(name, "cuMemFree") == 0) {
        return (Function)&free_inside;
    }
    if (strcmp(name, "cuMemAllocAsync") == 0) {
        return per_thread ? (Function)&cuMemAllocAsync_ptsz : (Function)&cuMemAllocAsync;
    }
    return strcmp(name, "cuMulticastBindMem") == 0 ? (Function)&cuMulticastBindMem : NULL;
}

int cuGetProcAddress_v2(const char *name, Function *ret, int version, unsigned long flags,
                        int *ret_status) {
    *ret = find(name, version, flags == 2);
    *ret_status = *ret == NULL;
    return 0;
}
