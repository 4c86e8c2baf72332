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
 *   create=BYTES     cuMemCreate on device 0
 *   nvml=NAME        opens NVML by that name, and calls nvmlInit; no name: it is linked
 *   memory=INDEX     nvmlDeviceGetMemoryInfo of NVML's device: total, free and used
 *   memory2=INDEX    nvmlDeviceGetMemoryInfo_v2: total, free, used and reserved
 *   monitor=INDEX    the first of them, by another thread
 *   refused=         both, without a device, and the second with no version
 *   call=FUNCTION    a function of NVML's, without arguments
 *   text=RESULT      nvmlErrorString: its length
 *   come-and-go=N    another thread asks NVML and CUDA while the context of device 0 is reset N
 * times fork, exec       what follows is done by a forked child, or by this program anew in a child
 *   loaded=NAME      whether that library is in the process
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *driver, *nvml;
static char **following; /* the steps still to be done */
extern char **environ;

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

static int retain_and_enter(int device) {
    CUcontext context = NULL;
    CU(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)(&context, device);
    return (int)CU(cuCtxSetCurrent, cuCtxSetCurrent)(context);
}

static void enter_context(const char *device) {
    printf("context %d\n", retain_and_enter(atoi(device)));
}

static void leave_context(const char *argument) {
    (void)argument;
    CU(cuCtxSetCurrent, cuCtxSetCurrent)(NULL);
}

/* Prints both figures, or the one with that name. */
static void ask_info(const char *which) {
    size_t total = 0, unused = 0;
    size_t *const ret_total = strcmp(which, "free") == 0 ? NULL : &total;
    size_t *const ret_unused = strcmp(which, "total") == 0 ? NULL : &unused;
    const int result = CU(cuMemGetInfo, cuMemGetInfo_v2)(ret_unused, ret_total);
    printf("info %d %zu %zu\n", result, total, unused);
}

static void allocate(const char *bytes) {
    CUdeviceptr address = 0;
    printf("alloc %d\n", CU(cuMemAlloc, cuMemAlloc_v2)(&address, strtoull(bytes, NULL, 10)));
}

static void create(const char *bytes) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle = 0;
    printf("create %d\n",
           CU(cuMemCreate, cuMemCreate)(&handle, strtoull(bytes, NULL, 10), &properties, 0));
}

/* --- NVML ------------------------------------------------------------------------------------ */

struct memory {
    unsigned long long total, free, used;
};
struct memory_2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
static const unsigned version_2 = 40 | 2u << 24; /* as in nvml.h */

static int call(const char *name) {
    return ((int (*)(void))find(nvml, name))();
}

static void open_nvml(const char *name) {
    nvml = open_library(name);
    printf("nvml %d\n", call("nvmlInit_v2"));
}

static void *device_at(const char *index) {
    void *device = NULL;
    ((int (*)(unsigned, void **))find(nvml, "nvmlDeviceGetHandleByIndex_v2"))((unsigned)atoi(index),
                                                                              &device);
    return device;
}

static int get_memory(void *device, struct memory *memory) {
    return ((int (*)(void *, struct memory *))find(nvml, "nvmlDeviceGetMemoryInfo"))(device,
                                                                                     memory);
}

static int get_memory_2(void *device, struct memory_2 *memory) {
    return ((int (*)(void *, struct memory_2 *))find(nvml, "nvmlDeviceGetMemoryInfo_v2"))(device,
                                                                                          memory);
}

static void ask_memory(const char *index) {
    struct memory memory = {0};
    const int result = get_memory(device_at(index), &memory);
    printf("memory %d %llu %llu %llu\n", result, memory.total, memory.free, memory.used);
}

static void ask_memory_2(const char *index) {
    struct memory_2 memory = {.version = version_2};
    const int result = get_memory_2(device_at(index), &memory);
    printf("memory2 %d %llu %llu %llu %llu\n", result, memory.total, memory.free, memory.used,
           memory.reserved);
    if (memory.version != version_2) {
        printf("version %u\n", memory.version);
    }
}

static void ask_without_device(const char *argument) {
    (void)argument;
    struct memory memory = {0};
    struct memory_2 memory_2 = {0};
    printf("refused %d %d %d\n", get_memory(NULL, &memory), get_memory(device_at("0"), NULL),
           get_memory_2(device_at("0"), &memory_2));
}

static void *monitor(void *index) {
    ask_memory(index);
    return NULL;
}

static void ask_by_thread(const char *index) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, monitor, (void *)(uintptr_t)index) == 0) {
        pthread_join(thread, NULL);
    }
}

static int over; /* atomic */

/* Whatever the answer is. */
static void ask_about_memory(void) {
    CUmemoryPool pool = NULL;
    cuuint64_t used = 0;
    CUdeviceptr base = 0;
    CU(cuMemGetAddressRange, cuMemGetAddressRange_v2)(&base, NULL, 4096);
    CU(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool)(&pool, 0);
    CU(cuMemPoolGetAttribute, cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    CU(cuMemPoolTrimTo, cuMemPoolTrimTo)(pool, 0);
}

/* Asks until the totals differ from the first one. */
static void *ask_until_over(void *device) {
    struct memory first = {0}, memory = {0};
    uintptr_t others = 0;
    get_memory(device, &first);
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        size_t total = 0;
        CU(cuDeviceTotalMem, cuDeviceTotalMem_v2)(&total, 0);
        get_memory(device, &memory);
        ask_about_memory();
        others += memory.total != first.total || total != first.total || memory.free > memory.total;
    }
    return (void *)others;
}

static void come_and_go(const char *rounds) {
    pthread_t thread;
    void *others = NULL;
    if (pthread_create(&thread, NULL, ask_until_over, device_at("1")) != 0) {
        exit(1);
    }
    for (int i = atoi(rounds); i > 0; i--) {
        CUdeviceptr address = 0;
        retain_and_enter(0);
        CU(cuMemAlloc, cuMemAlloc_v2)(&address, 1 << 20);
        CU(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)(0);
        CU(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)(0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, &others);
    printf("others %zu\n", (size_t)(uintptr_t)others);
}

static void call_function(const char *name) {
    printf("call %d\n", call(name));
}

static void ask_text(const char *result) {
    const char *text = ((const char *(*)(int))find(nvml, "nvmlErrorString"))(atoi(result));
    printf("text %zu\n", strlen(text));
}

/* --- processes ------------------------------------------------------------------------------- */

static void wait_for(pid_t child) {
    int status = -1;
    exit(child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
}

static void go_on_forked(const char *argument) {
    (void)argument;
    const pid_t child = fork();
    if (child != 0) {
        wait_for(child);
    }
}

/* The word before the next steps becomes the child's name. */
static void go_on_anew(const char *argument) {
    (void)argument;
    pid_t child = -1;
    const int failed = posix_spawn(&child, "/proc/self/exe", NULL, NULL, following - 1, environ);
    wait_for(failed ? -1 : child);
}

static void ask_loaded(const char *name) {
    void *found = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    printf("loaded %d\n", found != NULL);
}

static const struct step {
    const char *name;
    void (*take)(const char *argument);
} steps[] = {{"cuda", open_driver},        {"init", init},
             {"total", ask_total},         {"active", ask_active},
             {"context", enter_context},   {"none", leave_context},
             {"info", ask_info},           {"alloc", allocate},
             {"create", create},           {"nvml", open_nvml},
             {"memory", ask_memory},       {"memory2", ask_memory_2},
             {"monitor", ask_by_thread},   {"refused", ask_without_device},
             {"call", call_function},      {"text", ask_text},
             {"come-and-go", come_and_go}, {"fork", go_on_forked},
             {"exec", go_on_anew},         {"loaded", ask_loaded}};

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
        following = argv + i + 1;
        take_step(argv[i]);
    }
    return 0;
}
