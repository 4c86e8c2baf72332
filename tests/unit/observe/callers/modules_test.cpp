#include "observe/callers/modules.h"

#include "catch.h"
#include "observe/process.h"

#include <cstdlib>
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <new>
#include <thread>

using namespace emm::observe;

// A sanitizer has its own of these functions.
#if EMM_TEST_COUNTS_ALLOCATIONS
namespace {

thread_local bool is_within = false; // dl_iterate_phdr
thread_local int iterations = 0, taken_within = 0;

} // namespace

extern "C" int dl_iterate_phdr(int (*visit)(dl_phdr_info *, size_t, void *), void *data) {
    static const auto real =
        reinterpret_cast<decltype(&dl_iterate_phdr)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
    is_within = true;
    ++iterations;
    const int answer = real(visit, data);
    is_within = false;
    return answer;
}

void *operator new(size_t size) {
    taken_within += is_within;
    if (void *const memory = std::malloc(size)) {
        return memory;
    }
    throw std::bad_alloc();
}

void operator delete(void *memory) noexcept {
    std::free(memory);
}

void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}
#endif

namespace {

uintptr_t address_of(void (*function)()) {
    return reinterpret_cast<uintptr_t>(function);
}

void somewhere() {}

std::string path_around(uintptr_t address) {
    return modules().path(modules().place_of(address).module);
}

} // namespace

TEST_CASE("a range is found by an address within it, and by no other") {
    const std::vector<CodeRange> ranges = {
        {100, 200, 90, 1, false}, {200, 210, 90, 1, false}, {300, 400, 290, 2, true}};
    const auto module_at = [&](uintptr_t address) {
        const CodeRange *const range = range_around(ranges, address);
        return range ? range->module : 0;
    };
    CHECK(module_at(0) == 0);
    CHECK(module_at(99) == 0);
    CHECK(module_at(100) == 1);
    CHECK(module_at(199) == 1);
    CHECK(module_at(209) == 1);
    CHECK(module_at(210) == 0);
    CHECK(module_at(300) == 2);
    CHECK(module_at(400) == 0);
    CHECK(module_at(UINTPTR_MAX) == 0);
    CHECK(range_around({}, 100) == nullptr);
}

TEST_CASE("libraries that pass calls on are known by their names") {
    for (const char *path : {"/usr/lib/libemm.so.1", "libemm-run.so", "/x/libemm-bridge.so",
                             "/x/libcuda.so.1", "/x/libcuda.so.580.159", "libcudart.so.12",
                             "/x/libcudart-d0da41ae.so.11.0", "/usr/lib/libffi.so.8"}) {
        CHECK(is_passing_library(path));
    }
    for (const char *path : {"", "/x/libemm-pool.so", "/libcuda.so.1/libtorch.so",
                             "/x/libc10_cuda.so", "/x/cupy/cuda.so", "/x/libcudnn.so.9", "train"}) {
        CHECK_FALSE(is_passing_library(path));
    }
}

TEST_CASE("code of the program and of libraries is told apart") {
    CHECK(path_around(address_of(&somewhere)) == program_path());
    // No sanitizer replaces this function.
    CHECK_THAT(path_around(reinterpret_cast<uintptr_t>(&gnu_get_libc_version)),
               ContainsSubstring("libc.so"));
    const CodePlace nowhere = modules().place_of(16);
    CHECK((nowhere.module == 0 && nowhere.offset == 16));
    CHECK(modules().path(0).empty());
    CHECK(modules().path(4'000'000).empty());
}

TEST_CASE("a place is the same wherever the file is mapped") {
    const CodePlace one = modules().place_of(address_of(&somewhere));
    Dl_info info = {};
    REQUIRE(dladdr(reinterpret_cast<void *>(&somewhere), &info) != 0);
    CHECK(one.offset == address_of(&somewhere) - reinterpret_cast<uintptr_t>(info.dli_fbase));
}

TEST_CASE("a library that is loaded later is found, and one that was unloaded is not") {
    REQUIRE(modules().find(address_of(&somewhere)));
    const std::string file = EMM_TEST_FIXTURES "/libemm-good.so";
    void *const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
    const auto inside = reinterpret_cast<uintptr_t>(dlsym(library, "emm_plugin_entry_v1"));
    CHECK(path_around(inside) == file);
    const uint32_t number = modules().place_of(inside).module;
    CHECK_FALSE(modules().notice_unloads());

    REQUIRE(dlclose(library) == 0);
    CHECK(modules().notice_unloads());
    CHECK_FALSE(modules().notice_unloads());
    CHECK(modules().find(inside) == nullptr);
    CHECK(modules().path(number) == file); // records still name it

    void *const again = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto there = reinterpret_cast<uintptr_t>(dlsym(again, "emm_plugin_entry_v1"));
    CHECK(modules().place_of(there).module == number);
    dlclose(again);
}

#if EMM_TEST_COUNTS_ALLOCATIONS
TEST_CASE("no memory is taken while the dynamic linker's lock is held") {
    taken_within = 0;
    modules().find(16); // the known modules do not have it, so all are searched
    void *const library = dlopen(EMM_TEST_FIXTURES "/libemm-good.so", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
    iterations = 0;
    CHECK(modules().find(reinterpret_cast<uintptr_t>(dlsym(library, "emm_plugin_entry_v1"))));
    CHECK(iterations > 0);
    CHECK(taken_within == 0);
    dlclose(library);
}
#endif

TEST_CASE("threads ask while libraries come and go") {
    std::atomic<bool> end{false};
    std::atomic<bool> right{true};
    const auto ask = [&] {
        while (!end) {
            right = right.load() && path_around(address_of(&somewhere)) == program_path() &&
                    path_around(32).empty();
        }
    };
    std::thread one(ask), other(ask);
    for (int round = 0; round < 50; round++) {
        void *const library = dlopen(EMM_TEST_FIXTURES "/libemm-good.so", RTLD_NOW | RTLD_LOCAL);
        modules().find(reinterpret_cast<uintptr_t>(dlsym(library, "emm_plugin_entry_v1")));
        dlclose(library);
        modules().notice_unloads();
    }
    end = true;
    one.join();
    other.join();
    CHECK(right);
}
