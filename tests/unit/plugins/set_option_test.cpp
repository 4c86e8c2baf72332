// Behaviour: options that change while a program runs, on a plugin that changes some and on those
// that change none.
#include "gpu.h"

namespace {

constexpr size_t whole_mib = 1 << 20;

bool changes() {
    return plugin_name() == "pool";
}

emm_status try_in(emm_context *pool, size_t size) {
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(pool, size, EMM_STREAM_UNORDERED, &ptr);
    return status == EMM_OK ? emm_memfree(pool, ptr, size, EMM_STREAM_UNORDERED) : status;
}

} // namespace

TEST_CASE("a plugin that changes no options says so in a sentence, and goes on") {
    const Gpu gpu;
    if (changes()) {
        return;
    }
    CHECK(emm_context_set_option(gpu.emm(), "max", "64MiB") == EMM_E_NOT_SUPPORTED);
    CHECK(std::string(emm_last_error()->text).find("change options") != std::string::npos);
    CHECK(try_in(gpu.emm(), whole_mib) == EMM_OK);
}

TEST_CASE("a named pool gets another max alone, and again none") {
    const Gpu gpu;
    if (!changes()) {
        return;
    }
    emm_context *pool = context_named(gpu.emm(), "cache", "max=64MiB");
    CHECK(try_in(pool, 32 * whole_mib) == EMM_OK);
    REQUIRE(emm_context_set_option(pool, "max", "16MiB") == EMM_OK);
    CHECK(try_in(pool, 32 * whole_mib) == EMM_E_OUT_OF_MEMORY);
    CHECK(try_in(gpu.emm(), 32 * whole_mib) == EMM_OK);
    CHECK(emm_context_set_option(pool, "max", "1MiB") == EMM_E_PLUGIN_SPEC);
    CHECK(std::string(emm_last_error()->text).find("at least 2MiB") != std::string::npos);
    CHECK(try_in(pool, 16 * whole_mib) == EMM_OK);
    REQUIRE(emm_context_reset(pool) == EMM_OK);
    CHECK(try_in(pool, 32 * whole_mib) == EMM_E_OUT_OF_MEMORY);
    REQUIRE(emm_context_set_option(pool, "max", nullptr) == EMM_OK);
    CHECK(try_in(pool, 100 * whole_mib) == EMM_OK);
}
