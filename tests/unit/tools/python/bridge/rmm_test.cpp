// RMM's callback_memory_resource. Tests that need RMM are in tests/clients/python/rmm_test.py.
#include "client.h"

#include <algorithm>
#include <dlfcn.h>
#include <iterator>

TEST_CASE("a library that is not RMM is refused, and the resource is as it was") {
    const uintptr_t before[4] = {1, 2, 3, 4};
    uintptr_t resource[4] = {1, 2, 3, 4};
    void *const library = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    CHECK(emm_rmm_serve(resource, gpu(), library, 26, 10) == EMM_E_NOT_SUPPORTED);
    CHECK(emm_rmm_serve_pinned(resource, gpu(), library, 26, 10) == EMM_E_NOT_SUPPORTED);
    CHECK(std::equal(std::begin(before), std::end(before), std::begin(resource)));
    dlclose(library);
}
