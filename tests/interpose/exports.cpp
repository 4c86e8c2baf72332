// exports LIBRARY: whether cuGetProcAddress gives, for each entry that can be held or is served,
// the driver's export. By that the interposer knows these entries. Exit status 77: there is no such
// driver.
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <set>
#include <string>

namespace {

const char *const symbols[] = {
#define HELD(symbol, type) #symbol,
#include "held.inc"
#undef HELD
#define SERVED(name, since, symbol) #symbol,
#define SERVED_STREAM(name, since, symbol, variant) #symbol, #variant,
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
};

// From CUDA 2.0 to those to come, as cuda.h numbers them.
constexpr int first_version = 2000, last_version = 14090;
constexpr uint64_t legacy = 1, per_thread = 2;

std::string name_of(std::string symbol) {
    for (const char *variant : {"_ptds", "_ptsz"}) {
        if (symbol.ends_with(variant)) {
            symbol.resize(symbol.size() - 5);
        }
    }
    const size_t version = symbol.rfind("_v");
    return version == symbol.npos ? symbol : symbol.substr(0, version);
}

} // namespace

int main(int, char **words) {
    using Get = int (*)(const char *, void **, int, uint64_t, int *);
    void *const driver = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    const auto get = reinterpret_cast<Get>(driver ? dlsym(driver, "cuGetProcAddress_v2") : nullptr);
    if (!get) {
        std::printf("skipped: there is no driver %s\n", words[1]);
        return 77;
    }
    std::set<std::string> names;
    std::set<void *> exported;
    for (const char *symbol : symbols) {
        names.insert(name_of(symbol));
        exported.insert(dlsym(driver, symbol));
        exported.insert(dlsym(driver, name_of(symbol).c_str())); // its first form
    }
    int found_entries = 0, others = 0;
    for (const std::string &name : names) {
        for (int version = first_version; version <= last_version; version += 10) {
            for (const uint64_t flags : {uint64_t(0), legacy, per_thread}) {
                void *found = nullptr;
                int status = 0;
                if (get(name.c_str(), &found, version, flags, &status) != 0 || !found) {
                    continue;
                }
                found_entries++;
                if (exported.count(found) == 0) {
                    others++;
                    std::printf("%s of version %d with flags %d is another than any that is "
                                "exported\n",
                                name.c_str(), version, int(flags));
                }
            }
        }
    }
    std::printf("%d entries of %zu names\n", found_entries, names.size());
    return found_entries == 0 || others != 0;
}
