#include "../core/recorder.h"

#include <cstdlib>
#include <set>
#include <string>

TEST_CASE("a visitor of the driver's calls sees each function once, and ends the walk") {
    setenv("EMM_DRIVER_METER", "1", 1);
    void *host = nullptr;
    REQUIRE(emm_memhostalloc(recorded_context(), 64, 0, &host, nullptr) == EMM_OK);
    std::multiset<std::string> names;
    const emm_driver_count_visitor note = [](const char *name, uint64_t calls, void *user_data) {
        CHECK(calls > 0);
        static_cast<std::multiset<std::string> *>(user_data)->insert(name);
        return 0;
    };
    CHECK(emm_foreach_driver_count(note, &names) == EMM_OK);
    CHECK(names.count("cuMemHostAlloc") == 1);
    REQUIRE(names.size() > 1);
    int visits = 0;
    const emm_driver_count_visitor end = [](const char *, uint64_t, void *user_data) {
        return ++*static_cast<int *>(user_data);
    };
    CHECK(emm_foreach_driver_count(end, &visits) == EMM_OK);
    CHECK(visits == 1);
    CHECK(emm_foreach_driver_count(nullptr, nullptr) == EMM_E_INVALID_VALUE);
}
