#include "catch.h"
#include "core/reports/exit_statistics.h"

namespace emm::core {
namespace {

TEST_CASE("statistics at exit are a row for each context, and say where there are none") {
    emm_stats stats = {};
    stats.allocations = 1200;
    stats.frees = 1199;
    stats.failures = 1;
    stats.live_bytes = 3 << 19;
    stats.peak_live_bytes = 64 << 20;
    stats.cached_bytes = 2 << 20;
    stats.pending_bytes = 5 << 20;
    stats.reserved_bytes = 128 << 20;
    const std::string table = statistics_table(
        {{"device 0, context 1", "pool:max=1GiB", stats, 3}, {"device 1", "async", {}, 0}});
    CHECK(table ==
          "context              plugin         allocations  frees  failures  live MiB  peak MiB  "
          "cached MiB  pending MiB  reserved MiB  pressure runs\n"
          "device 0, context 1  pool:max=1GiB         1200   1199         1       1.5      64.0  "
          "       2.0          5.0         128.0              3\n"
          "device 1             async                    -      -         -         -         -  "
          "         -            -             -              0\n");
}

} // namespace
} // namespace emm::core
