/*
 * figures STEP...: does each step, in their order, and prints what a program learns of its memory.
 * The status is 1 if a library is not there.
 *   cuda             opens the driver, by dlopen
 *   init             cuInit
 *   total=DEVICE     cuDeviceTotalMem
 *   active=DEVICE    whether the device's primary context is there
 *   context=DEVICE   retains that context, and makes it current
 *   none             makes no context current
 *   info             cuMemGetInfo: total and free
 *   alloc=BYTES      cuMemAlloc
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *driver;

typedef void function(void);

static function *find(void *library, const char *name) {
    function *found = NULL;
    *(void **)&found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "figures: %s is not there\n", name);
        exit(1);
    }
    return found;
}

#define CU(name, symbol) ((__typeof__(&name))find(driver, #symbol))

static void *open_library(const char *name) {
    void *opened = dlopen(name, RTLD_NOW);
    if (!opened) {
        fprintf(stderr, "figures: %s\n", dlerror());
        exit(1);
    }
    return opened;
}

static void open_driver(const char *argument) {
    (void)argument;
    driver = open_library("libcuda.so.1");
}

static void init(const char *argument) {
    (void)argument;
    printf("init %d\n", CU(cuInit, cuInit)(0));
}

static void ask_total(const char *device) {
    size_t total = 0;
    const int result = CU(cuDeviceTotalMem, cuDeviceTotalMem_v2)(&total, atoi(device));
    printf("total %d %zu\n", result, total);
}

static void ask_active(const char *device) {
    unsigned flags = 0;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)(atoi(device), &flags, &active);
    printf("active %d\n", active);
}

static void enter_context(const char *device) {
    CUcontext context = NULL;
    CU(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)(&context, atoi(device));
    printf("context %d\n", CU(cuCtxSetCurrent, cuCtxSetCurrent)(context));
}

static void leave_context(const char *argument) {
    (void)argument;
    CU(cuCtxSetCurrent, cuCtxSetCurrent)(NULL);
}

static void ask_info(const char *argument) {
    (void)argument;
    size_t total = 0, unused = 0;
    const int result = CU(cuMemGetInfo, cuMemGetInfo_v2)(&unused, &total);
    printf("info %d %zu %zu\n", result, total, unused);
}

static void allocate(const char *bytes) {
    CUdeviceptr address = 0;
    printf("alloc %d\n", CU(cuMemAlloc, cuMemAlloc_v2)(&address, strtoull(bytes, NULL, 10)));
}

static const struct step {
    const char *name;
    void (*take)(const char *argument);
} steps[] = {{"cuda", open_driver},      {"init", init},
             {"total", ask_total},       {"active", ask_active},
             {"context", enter_context}, {"none", leave_context},
             {"info", ask_info},         {"alloc", allocate}};

static void take_step(const char *word) {
    const size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (strlen(steps[i].name) == length && memcmp(steps[i].name, word, length) == 0) {
            steps[i].take(word[length] ? word + length + 1 : "");
            fflush(stdout);
            return;
        }
    }
    fprintf(stderr, "figures: no such step: %s\n", word);
    exit(1);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        take_step(argv[i]);
    }
    return 0;
}
