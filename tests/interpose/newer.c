// Asks the interposer for entries of the driver newer_driver.c: emm's own take the place of those
// that it serves, whatever version is asked for, and of no others.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);

extern int cuGetProcAddress_v2(const char *name, Function *ret, int version, unsigned long flags,
                               int *ret_status);

static int wrong = 0;

static Function find(const char *name, int version, unsigned long flags) {
    Function found = NULL;
    int status = 0;
    if (cuGetProcAddress_v2(name, &found, version, flags, &status) != 0 || status != 0) {
        printf("%s of version %d: not found\n", name, version);
    }
    return found;
}

// NULL: none of the interposer's.
static void expect(const char *name, int version, unsigned long flags, const char *symbol) {
    const Function function = find(name, version, flags);
    void *found = NULL;
    memcpy(&found, &function, sizeof found);
    Dl_info info = {0};
    dladdr(found, &info);
    const char *const at = info.dli_saddr == found ? info.dli_sname : NULL;
    const int is_ours = found == dlsym(RTLD_DEFAULT, at ? at : "");
    const int is_right = symbol ? is_ours && strcmp(at, symbol) == 0 : !is_ours;
    if (!is_right) {
        printf("%s of version %d, flags %lu: expected %s, found %s\n", name, version, flags,
               symbol ? symbol : "the driver's own", at ? at : "no symbol");
        wrong++;
    }
}

int main(void) {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) {
        return 2;
    }
    expect("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
    expect("cuMemAlloc", 13010, 2, "cuMemAlloc_v2");
    expect("cuMemAllocAsync", 14000, 1, "cuMemAllocAsync");
    expect("cuMemAllocAsync", 14000, 2, "cuMemAllocAsync_ptsz");
    expect("cuMemFree", 14000, 0, "cuMemFree_v2");
    expect("cuMulticastBindMem", 13010, 0, "cuMulticastBindMem");
    expect("cuMemAlloc", 14000, 0, NULL);
    expect("cuMemAlloc", 14000, 2, NULL);
    void *block = NULL;
    unsigned seen = 0;
    int (*const newer)(void **, size_t, unsigned, unsigned *) =
        (int (*)(void **, size_t, unsigned, unsigned *))find("cuMemAlloc", 14000, 0);
    if (newer(&block, 100, 77, &seen) != 0 || seen != 77) {
        printf("the newer cuMemAlloc: expected 77, found %u\n", seen);
        wrong++;
    }
    close(STDERR_FILENO);
    close(ends[1]);
    char said[1000] = "";
    const char *const line = "emm run: emm does not serve cuMemAlloc as of CUDA 14.0: the program "
                             "gets the driver's own\n";
    if (read(ends[0], said, sizeof said - 1) < 0 || strcmp(said, line) != 0) {
        printf("expected %sfound %s\n", line, said);
        wrong++;
    }
    return wrong != 0;
}
