#include "driver.h"

#include <dlfcn.h>

Driver cu;

#ifdef LINKED
// Under names of their own, so that the header's declarations do not conflict.
#define DECLARE(symbol, name, version, ...)                                                        \
    extern "C" std::type_identity_t<__VA_ARGS__> linked_##symbol __asm__(#symbol);
DRIVER_VERSIONS(DECLARE)
#undef DECLARE
#endif

namespace {

#define TEXT_OF(symbol) #symbol
#define TEXT(symbol) TEXT_OF(symbol)

template <typename Function> bool set(Function &function, void *found) {
    function = reinterpret_cast<Function>(found);
    return found != nullptr;
}

#ifdef LINKED
std::string find_linked() {
#define TAKE(name) cu.name = &::name;
#define TAKE_VERSION(symbol, name, version, ...) cu.symbol = &linked_##symbol;
    DRIVER_ENTRIES(TAKE)
    DRIVER_VERSIONS(TAKE_VERSION)
#undef TAKE
#undef TAKE_VERSION
    return "";
}
#else
std::string find_linked() {
    return "this program is not linked to the driver";
}
#endif

// Every symbol by dlsym: with the version in its name, as in cuMemAlloc_v2.
std::string find_symbols(void *library) {
    std::string missing;
#define TAKE(name)                                                                                 \
    if (!set(cu.name, dlsym(library, TEXT(name)))) {                                               \
        missing += " " TEXT(name);                                                                 \
    }
#define TAKE_VERSION(symbol, name, version, ...) TAKE(symbol)
    DRIVER_ENTRIES(TAKE)
    DRIVER_VERSIONS(TAKE_VERSION)
#undef TAKE
#undef TAKE_VERSION
    return missing.empty() ? "" : "dlsym does not find" + missing;
}

using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult *);

void *ask(GetProcAddress get, const char *name, int version, cuuint64_t flags) {
    void *found = nullptr;
    CUdriverProcAddressQueryResult answer;
    return get(name, &found, version, flags, &answer) == CUDA_SUCCESS &&
                   answer == CU_GET_PROC_ADDRESS_SUCCESS
               ? found
               : nullptr;
}

// As the CUDA runtime does: cuGetProcAddress by dlsym, itself again by itself, then all the others.
std::string find_addresses(void *library, cuuint64_t flags) {
    constexpr int version = 12000;
    GetProcAddress first, get;
    if (!set(first, dlsym(library, "cuGetProcAddress_v2")) ||
        !set(get, ask(first, "cuGetProcAddress", version, flags))) {
        return "there is no cuGetProcAddress";
    }
    std::string missing;
#define TAKE(name)                                                                                 \
    if (!set(cu.name, ask(get, #name, version, flags))) {                                          \
        missing += " " #name;                                                                      \
    }
#define TAKE_VERSION(symbol, name, since, ...)                                                     \
    if (!set(cu.symbol, ask(get, name, since, flags))) {                                           \
        missing += " " name;                                                                       \
    }
    DRIVER_ENTRIES(TAKE)
    DRIVER_VERSIONS(TAKE_VERSION)
#undef TAKE
#undef TAKE_VERSION
    return missing.empty() ? "" : "cuGetProcAddress does not find" + missing;
}

} // namespace

std::string find_driver(const std::string &how) {
    if (how == "linked") {
        return find_linked();
    }
    const bool by_address = how == "proc" || how == "proc-per-thread";
    const bool by_path = how.starts_with("path=/");
    if (!by_address && !by_path && how != "dlsym" && how != "dlsym-so" && how != "deepbind") {
        return how + ": no such way";
    }
    const std::string name = by_path                           ? how.substr(5)
                             : by_address || how == "dlsym-so" ? "libcuda.so"
                                                               : "libcuda.so.1";
    void *library = dlopen(name.c_str(), RTLD_NOW | (how == "deepbind" ? RTLD_DEEPBIND : 0));
    if (!library) {
        return dlerror();
    }
    const cuuint64_t flags = how == "proc-per-thread"
                                 ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                 : CU_GET_PROC_ADDRESS_DEFAULT;
    return by_address ? find_addresses(library, flags) : find_symbols(library);
}
