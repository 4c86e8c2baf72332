// Faults on purpose, in a library that is opened at run time as a plugin is; a sanitizer build must
// report each. A kind has the name of its value for the option b_sanitize. valgrind, which needs no
// build of its own, must report the kinds address and leak.

#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

namespace {

int use_after_free() {
    auto *bytes = static_cast<volatile int *>(std::malloc(sizeof(int)));
    *bytes = 1;
    std::free(const_cast<int *>(bytes));
    return *bytes;
}

int leak() {
    void *volatile lost = std::malloc(sizeof(int));
    lost = nullptr;
    return lost != nullptr;
}

int overflow() {
    volatile int large = std::numeric_limits<int>::max();
    return large + 1;
}

int race() {
    int shared = 0;
    auto count = [&shared] {
        for (int i = 0; i < 1000; ++i)
            ++shared;
    };
    std::thread other(count);
    count();
    other.join();
    return shared;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int seeded_fault(const char *kind) {
    if (std::strcmp(kind, "address") == 0)
        return use_after_free();
    if (std::strcmp(kind, "leak") == 0)
        return leak();
    if (std::strcmp(kind, "undefined") == 0)
        return overflow();
    return race();
}
