// Stands for the interposer: a library with the driver's SONAME that opens the real driver.
#include <dlfcn.h>

void *stand_in_open(const char *path);

void *stand_in_open(const char *path) {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
