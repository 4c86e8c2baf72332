// program PLUGIN: knows nothing of emm, and takes memory from the libcuda.so.1 that it finds, also
// on a thread of its own. Fails unless the process then has the library PLUGIN.
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef OLD_RUNTIME
int old_runtime(void);
#endif

typedef unsigned long long address;
enum { success = 0 };

static int (*allocate)(address *ret_address, size_t size);
static int (*release)(address of);
static int (*set_current)(void *context);
static void *context;

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "expected %s\n", what);
        exit(1);
    }
}

static void *find(const char *name) {
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *const found = driver ? dlsym(driver, name) : NULL;
    expect(found != NULL, name);
    return found;
}

static void open_driver(void) {
    int (*init)(unsigned) = NULL;
    int (*retain)(void **, int) = NULL;
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    *(void **)&set_current = find("cuCtxSetCurrent");
    *(void **)&allocate = find("cuMemAlloc_v2");
    *(void **)&release = find("cuMemFree_v2");
    expect(init(0) == success, "a driver");
    expect(retain(&context, 0) == success, "a context");
    expect(set_current(context) == success, "it to be current");
}

static void *take(void *ret_address) {
    expect(set_current(context) == success, "the context on another thread");
    expect(allocate(ret_address, 1000) == success, "memory");
    return NULL;
}

int main(int count, char **words) {
    address block = 0, more = 0;
    pthread_t thread;
#ifdef OLD_RUNTIME
    expect(old_runtime(), "the old runtime");
#endif
    open_driver();
    expect(pthread_create(&thread, NULL, take, &block) == 0 && pthread_join(thread, NULL) == 0,
           "a thread");
    expect(allocate(&more, (size_t)1 << 50) != success, "no memory of 1 PiB");
    expect(release(block) == success, "the memory to go back");
    expect(count == 2 && dlopen(words[1], RTLD_NOW | RTLD_NOLOAD) != NULL,
           "the plugin in the process");
    return 0;
}
