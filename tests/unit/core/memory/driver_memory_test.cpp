// Memory that a program takes past any plugin.
#include "../driver_calls.h"
#include "../recorder.h"
#include "core/reports/holders.h"

#include <cstdlib>

namespace {

CUmemoryPool make_pool() {
    CUmemoryPool pool = nullptr;
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    REQUIRE(CU(cuMemPoolCreate)(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

uint64_t pools_live() {
    auto account = sized<emm_device_account>();
    REQUIRE(emm_get_device_account(0, &account) == EMM_OK);
    return account.program[EMM_MEMORY_POOL].live;
}

} // namespace

TEST_CASE("without a bound a program's pool is charged, and no allocation from it") {
    new_context();
    const CUmemoryPool pool = make_pool();
    emm_driver_memory memory = {sizeof memory, 0, EMM_MEMORY_POOL, 0, 0, nullptr};
    uint64_t made = 0, growth = 7;
    REQUIRE(emm_take_driver_memory(&memory, &made) == EMM_OK);
    REQUIRE(emm_keep_driver_memory(made, pool) == EMM_OK);
    CHECK(made != 0);
    memory.bytes = 4096;
    memory.pool = pool;
    CHECK(emm_take_driver_memory(&memory, &growth) == EMM_OK);
    CHECK(growth == 0);
    CHECK(emm_give_driver_memory(growth) == EMM_OK);
    CHECK(pools_live() == 1);
    CHECK(emm_give_driver_memory(made) == EMM_OK);
    CHECK(pools_live() == 0);
    CHECK(CU(cuMemPoolDestroy)(pool) == CUDA_SUCCESS);
}

TEST_CASE("memory that is not described as it must be is not charged") {
    new_context();
    const emm_driver_memory good = {sizeof good, 0, EMM_MEMORY_POOL, 0, 0, nullptr};
    emm_driver_memory sizeless = good, strange = good;
    sizeless.struct_size = 0;
    strange.kind = EMM_MEMORY_KINDS;
    uint64_t id = 7;
    CHECK(emm_take_driver_memory(&sizeless, &id) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("struct_size"));
    CHECK(emm_take_driver_memory(&strange, &id) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text, ContainsSubstring("kind: expected EMM_MEMORY_*"));
    CHECK(emm_take_driver_memory(nullptr, &id) == EMM_E_INVALID_VALUE);
    CHECK(emm_take_driver_memory(&good, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(id == 7);
    CHECK(pools_live() == 0);
}

TEST_CASE("memory that the bound refuses has no holder in reports") {
    setenv("EMM_LIMIT", "64MiB", 1);
    setenv("EMM_TRACK", "module", 1);
    emm_context *const context = recorded_context();
    emm_driver_memory memory = {sizeof memory, 0, EMM_MEMORY_PHYSICAL, 0, 48 << 20, nullptr};
    uint64_t kept = 0, refused = 0;
    REQUIRE(emm_take_driver_memory(&memory, &kept) == EMM_OK);
    CHECK(emm_take_driver_memory(&memory, &refused) == EMM_E_OUT_OF_MEMORY);
    const auto report = emm::core::memory_report(*context, std::nullopt);
    REQUIRE(report.tracked.has_value());
    REQUIRE(report.tracked->of_driver.size() == 1);
    CHECK(report.tracked->of_driver[0].bytes == 48 << 20);
    CHECK(emm_give_driver_memory(kept) == EMM_OK);
}
