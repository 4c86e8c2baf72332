/* LD_AUDIT: a program that opens the driver by its absolute path gets the interposer too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

/* The libcuda.so.1 beside this library. The dynamic linker holds its lock over each call here. */
static char interposer[PATH_MAX];

static void find_interposer(void) {
    static const char name[] = "libcuda.so.1";
    Dl_info own;
    const char *slash = dladdr(interposer, &own) != 0 ? strrchr(own.dli_fname, '/') : NULL;
    const size_t folder = slash ? (size_t)(slash - own.dli_fname) + 1 : 0;
    if (folder > 0 && folder + sizeof name <= sizeof interposer) {
        memcpy(interposer, own.dli_fname, folder);
        memcpy(interposer + folder, name, sizeof name);
    }
}

/* FOLDER/./libcuda.so.1 is how the interposer writes the real driver's path. */
static bool is_for_interposer(const char *name, const char *base) {
    return base - name >= 3 && strncmp(base - 3, "/./", 3) == 0;
}

static bool is_driver(const char *name) {
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    return (strcmp(base, "libcuda.so.1") == 0 || strcmp(base, "libcuda.so") == 0) &&
           !is_for_interposer(name, base);
}

SHOWN unsigned la_version(unsigned version) {
    find_interposer();
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

SHOWN char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
    (void)cookie;
    (void)flag;
    return interposer[0] != '\0' && is_driver(name) ? interposer : (char *)name;
}
