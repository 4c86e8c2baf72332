// seeded-fault LIBRARY KIND: commits the fault and ends well, unless a sanitizer objects.

#include <cstdio>
#include <dlfcn.h>

int main(int argc, char *argv[]) {
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    void *symbol = library ? dlsym(library, "seeded_fault") : nullptr;
    if (!symbol) {
        std::fprintf(stderr, "usage: seeded-fault LIBRARY KIND\n");
        return 2;
    }
    auto *fault = reinterpret_cast<int (*)(const char *)>(symbol);
    std::printf("the fault went unnoticed: %d\n", fault(argv[2]));
    return 0;
}
