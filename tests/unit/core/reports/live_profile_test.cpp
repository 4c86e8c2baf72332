#include "core/reports/live_profile.h"

#include "../address_plugin.h"
#include "catch.h"

#include <cstdlib>

namespace {

emm_context *served() {
    emm_context *context = nullptr;
    REQUIRE(emm_set_plugin_entry(&AddressPlugin::entry, nullptr) == EMM_OK);
    REQUIRE(emm_context_for_device(0, &context) == EMM_OK);
    return context;
}

} // namespace

TEST_CASE("a profile has the live memory of each caller, the largest first") {
    setenv("EMM_TRACK", "module", 1);
    emm_context *context = served();
    emm_deviceptr small = 0, large = 0, freed = 0;
    REQUIRE(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &small) == EMM_OK);
    REQUIRE(emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &large) == EMM_OK);
    REQUIRE(emm_memalloc(context, 8192, EMM_STREAM_LEGACY, &freed) == EMM_OK);
    REQUIRE(emm_memfree(context, freed, 8192, EMM_STREAM_LEGACY) == EMM_OK);
    const emm::core::LiveProfile profile = emm::core::live_profile();
    CHECK(profile.is_tracked);
    REQUIRE(profile.callers.size() == 2);
    CHECK((profile.callers[0].bytes == 4096 && profile.callers[0].count == 1));
    CHECK((profile.callers[1].bytes == 64 && profile.callers[1].memory == EMM_EVENT_DEVICE));
    REQUIRE(profile.callers[0].frames.size() == 1);
    CHECK_THAT(profile.frames.at(profile.callers[0].frames[0]).file,
               ContainsSubstring("core-tests"));
}

TEST_CASE("without EMM_TRACK a profile is empty, and says that nothing is tracked") {
    unsetenv("EMM_TRACK");
    emm_context *context = served();
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    const emm::core::LiveProfile profile = emm::core::live_profile();
    CHECK_FALSE(profile.is_tracked);
    CHECK(profile.callers.empty());
}
