#include "observe/environment.h"

#include "../core/host_memory.h"
#include "catch.h"

#include <cstdlib>

#if EMM_TEST_FAILS_ALLOCATIONS
TEST_CASE("an invalid setting counts as unset, even without host memory for the warning") {
    setenv("EMM_TRACK", "everything", 1);
    has_memory = false;
    const std::string_view found = emm::observe::setting("EMM_TRACK");
    has_memory = true;
    CHECK(found.empty());
}
#endif
