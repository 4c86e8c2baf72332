#include "proc_address.h"

#include "catch.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string>

using namespace emm::run;

namespace {

struct ServedRow {
    const char *name;
    int since;
    Served served;
    bool per_thread;
};

constexpr ServedRow served_rows[] = {
#define SERVED(name, since, symbol) {#name, since, served_##symbol, false},
#define SERVED_ALSO SERVED
#define SERVED_STREAM(name, since, symbol, variant)                                                \
    {#name, since, served_##symbol, false}, {#name, since, served_##variant, true},
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
};

using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult *);

} // namespace

TEST_CASE("an entry is found by its name, in the newest form that is not too new") {
    CHECK(served_by_name("cuMemAlloc", 3020, false) == served_cuMemAlloc_v2);
    CHECK(served_by_name("cuMemAlloc", 13000, false) == served_cuMemAlloc_v2);
    CHECK(served_by_name("cuDevicePrimaryCtxRelease", 10000, false) ==
          served_cuDevicePrimaryCtxRelease);
    CHECK(served_by_name("cuDevicePrimaryCtxRelease", 11000, false) ==
          served_cuDevicePrimaryCtxRelease_v2);
    CHECK(served_by_name("cuGetProcAddress", 11080, false) == served_cuGetProcAddress);
    CHECK(served_by_name("cuGetProcAddress", 12000, false) == served_cuGetProcAddress_v2);
    CHECK(served_by_name("cuGraphInstantiate", 11080, false) == served_cuGraphInstantiate_v2);
    CHECK(served_by_name("cuGraphInstantiate", 12000, false) == served_cuGraphInstantiateWithFlags);
    CHECK(served_by_name("cuGraphExecUpdate", 11080, false) == served_cuGraphExecUpdate);
    CHECK(served_by_name("cuGraphExecUpdate", 12000, false) == served_cuGraphExecUpdate_v2);
    CHECK(served_by_name("cuGraphAddNode", 13030, false) == served_cuGraphAddNode_v2);
    CHECK(served_by_name("cuGraphAddNode", 13040, false) == served_cuGraphAddNode_v3);
}

TEST_CASE("with the threads' own streams asked for, the variant for them is found") {
    CHECK(served_by_name("cuMemAllocAsync", 12000, true) == served_cuMemAllocAsync_ptsz);
    CHECK(served_by_name("cuStreamWaitEvent", 7000, true) == served_cuStreamWaitEvent_ptsz);
    CHECK(served_by_name("cuStreamWaitEvent", 6050, true) == served_cuStreamWaitEvent);
    CHECK(served_by_name("cuMemAlloc", 12000, true) == served_cuMemAlloc_v2);
}

TEST_CASE("what is not served, or only in a newer form, is not found") {
    CHECK(served_by_name("cuLaunchKernel", 13000, false) == served_count);
    CHECK(served_by_name("cuMemAlloc_v2", 13000, false) == served_count);
    CHECK(served_by_name("cuMemAlloc", 2000, false) == served_count);
    CHECK(served_by_name("", 13000, false) == served_count);
}

TEST_CASE("the driver's function decides which form of an entry is served") {
    char places[served_count]; // addresses of functions
    Entries driver = {};
    for (int i = 0; i < served_count; i++) {
        driver.at[i] = reinterpret_cast<Entry>(&places[i]);
    }
    static int asked;
    asked = 0;
    static char inner, newer;
    // Finds for cuMemAlloc a function that no library exports, and a newer one from CUDA 14 on.
    const AskDriver ask = [](const char *name, int version, bool) -> void * {
        asked++;
        const bool is_alloc = std::string(name) == "cuMemAlloc" && version >= 3020;
        return !is_alloc ? nullptr : version < 14000 ? &inner : &newer;
    };
    const auto served = [&](void *found, const char *name, int version, bool per_thread = false) {
        return served_by_function(found, name, version, per_thread, driver, ask);
    };
    SECTION("the version that was asked for does not") {
        CHECK(served(&places[served_cuMulticastBindMem], "cuMulticastBindMem", 13010) ==
              served_cuMulticastBindMem);
        CHECK(served(&places[served_cuMulticastBindMem_v2], "cuMulticastBindMem", 13010) ==
              served_cuMulticastBindMem_v2);
        CHECK(served(&places[served_cuMemAllocAsync_ptsz], "cuMemAllocAsync", 12000, true) ==
              served_cuMemAllocAsync_ptsz);
        CHECK(served(&places[served_cuMemAllocAsync], "cuMemAllocAsync", 12000, true) ==
              served_cuMemAllocAsync);
        CHECK(asked == 0);
    }
    SECTION("a function that is not exported is the one of a served form, or a newer one") {
        CHECK(served(&inner, "cuMemAlloc", 13000) == served_cuMemAlloc_v2);
        CHECK(served(&newer, "cuMemAlloc", 14000) == served_count);
        CHECK(served(&inner, "cuMemFree", 13000) == served_count);
        CHECK(served(&inner, "cuMemAlloc", 3010) == served_count); // a form of CUDA 2
    }
    SECTION("an entry that the driver does not export is not served") {
        driver.at[served_cuMemAlloc_v2] = nullptr;
        CHECK(served(&inner, "cuMemAlloc", 13000) == served_count);
    }
}

TEST_CASE("each served entry has the symbol by which it is found") {
    for (int served = 0; served < served_count; served++) {
        CHECK(served_by_symbol(symbol_of(Served(served))) == served);
    }
    CHECK(served_by_symbol("cuMemAlloc") == served_count);
}

TEST_CASE("the beginnings of captures that newer drivers have are found in those") {
    CHECK(served_by_name("cuStreamBeginRecaptureToGraph", 13020, false) == served_count);
    CHECK(served_by_name("cuStreamBeginRecaptureToGraph", 13030, false) ==
          served_cuStreamBeginRecaptureToGraph);
    CHECK(served_by_name("cuStreamBeginRecaptureToGraph", 13030, true) ==
          served_cuStreamBeginRecaptureToGraph_ptsz);
}

// For any headers of the build.
TEST_CASE("the interposer has each entry that is served") {
    void *const interposer = dlopen(std::getenv("EMM_TEST_INTERPOSER"), RTLD_LAZY | RTLD_LOCAL);
    REQUIRE(interposer);
    for (int served = 0; served < served_count; served++) {
        INFO(symbol_of(Served(served)));
        CHECK(dlsym(interposer, symbol_of(Served(served))));
    }
}

TEST_CASE("the driver has the same entry for a name and version as emm run") {
    const char *const path = std::getenv("EMM_DRIVER");
    void *const driver = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(driver);
    const auto get = reinterpret_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress_v2"));
    REQUIRE(get);
    const auto ask_version =
        reinterpret_cast<CUresult (*)(int *)>(dlsym(driver, "cuDriverGetVersion"));
    int compared = 0, newest = 0;
    REQUIRE(ask_version(&newest) == CUDA_SUCCESS);
    for (const ServedRow &row : served_rows) {
        const cuuint64_t flags = row.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        const int version = row.per_thread && row.since < 7000 ? 7000 : row.since;
        void *found = nullptr;
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        if (row.since > newest || // a driver gives what it has of that name
            get(row.name, &found, version, flags, &status) != CUDA_SUCCESS || !found) {
            continue; // a driver need not have all of them
        }
        INFO(row.name << " of CUDA " << version << (row.per_thread ? ", per thread" : ""));
        CHECK(found == dlsym(driver, symbol_of(row.served)));
        compared++;
    }
    CHECK(compared > served_count / 2);
}
