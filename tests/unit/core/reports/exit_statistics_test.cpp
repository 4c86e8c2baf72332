#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"
#include "core/reports/exit_statistics.h"

#include <cstdlib>

namespace emm::core {
namespace {

TEST_CASE("statistics at exit are a row for each context, and say where there are none") {
    emm_stats stats = {};
    stats.allocations = 1200;
    stats.frees = 1199;
    stats.live_bytes = 3 << 19;
    stats.peak_live_bytes = 64 << 20;
    stats.cached_bytes = 2 << 20;
    stats.pending_bytes = 5 << 20;
    stats.reserved_bytes = 128 << 20;
    const std::string table = statistics_table(
        {{"device 0, context 1", "pool:max=1GiB", stats, 1, 3}, {"device 1", "async", {}, 2, 0}});
    CHECK(table ==
          "context              plugin         allocations  frees  failures  live MiB  peak MiB  "
          "cached MiB  pending MiB  reserved MiB  pressure runs\n"
          "device 0, context 1  pool:max=1GiB         1200   1199         1       1.5      64.0  "
          "       2.0          5.0         128.0              3\n"
          "device 1             async                    -      -         2         -         -  "
          "         -            -             -              0\n");
}

TEST_CASE("a plugin that keeps no figures has none at exit") {
    setenv("EMM_STATS", "exit", 1);
    emm_context *const context = recorded_context();
    REQUIRE(emm_context_retire(context) == EMM_OK);
    CHECK_FALSE(context->has_last_stats);
}

TEST_CASE("a context that is retired leaves its statistics for the exit, if they are wanted") {
    setenv("EMM_STATS", "exit", 1);
    Recorder::the().table.get_stats = [](emm_manager *, emm_stats *ret_stats) -> emm_status {
        auto stats = sized<emm_stats>();
        stats.allocations = 77;
        emm_copy_sized(ret_stats, &stats);
        return EMM_OK;
    };
    emm_context *const context = recorded_context();
    REQUIRE(emm_context_retire(context) == EMM_OK);
    REQUIRE(context->has_last_stats);
    CHECK(context->last_stats.allocations == 77);
}

} // namespace
} // namespace emm::core
