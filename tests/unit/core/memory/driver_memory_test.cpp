// Memory that a program takes past any plugin, without a bound.
#include "../driver_calls.h"

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
    emm_device_account account = {};
    account.struct_size = sizeof account;
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
