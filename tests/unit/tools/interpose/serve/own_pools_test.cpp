#include "serve/own_pools.h"

#include "catch.h"

using namespace emm::run;

namespace {

CUmemPoolProps plain(CUdevice device) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

constexpr uint64_t total = uint64_t(80) << 30;

bool allowed(CUmemPool_attribute attribute, uint64_t value) {
    PoolSettings settings;
    settings.release_threshold = total;
    settings.set(attribute, &value);
    return settings.allow_plugin(total);
}

} // namespace

TEST_CASE("a pool of device memory alone is plain, on any device") {
    CHECK(is_plain(plain(0)));
    CHECK(is_plain(plain(3)));
    CUmemPoolProps exported = plain(0), elsewhere = plain(0), other_type = plain(0),
                   newer = plain(0);
    exported.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_FALSE(is_plain(exported));
    elsewhere.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    CHECK_FALSE(is_plain(elsewhere));
    other_type.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    CHECK_FALSE(is_plain(other_type));
    newer.reserved[sizeof newer.reserved - 1] = 1;
    CHECK_FALSE(is_plain(newer));
#if CUDA_VERSION >= 12020
    CUmemPoolProps limited = plain(0);
    limited.maxSize = size_t(1) << 30;
    CHECK_FALSE(is_plain(limited));
#endif
}

TEST_CASE("a pool that keeps all memory and allows all reuse may be a plugin's") {
    CHECK_FALSE(PoolSettings().allow_plugin(total));
    CHECK(allowed(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, total));
    CHECK(allowed(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    CHECK_FALSE(allowed(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, total - 1));
    for (const CUmemPool_attribute attribute :
         {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
        CHECK(allowed(attribute, 1));
        CHECK_FALSE(allowed(attribute, 0));
    }
    CHECK(allowed(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
}

TEST_CASE("a way of reuse that is allowed again is allowed, and the others stay as they are") {
    PoolSettings settings;
    settings.release_threshold = total;
    const int off = 0, on = 1;
    settings.set(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off);
    settings.set(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &off);
    settings.set(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on);
    CHECK_FALSE(settings.allow_plugin(total));
    settings.set(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &on);
    CHECK(settings.allow_plugin(total));
}

TEST_CASE("a plugin that caches in stream order without CUDA is worth a pool's place") {
    constexpr uint64_t caches = EMM_PLUGIN_CACHES | EMM_PLUGIN_STREAM_ORDERED;
    CHECK(is_worth_serving(caches));
    CHECK(is_worth_serving(caches | EMM_PLUGIN_CAPTURE));
    CHECK_FALSE(is_worth_serving(caches | EMM_PLUGIN_NEEDS_CURRENT));
    CHECK_FALSE(is_worth_serving(EMM_PLUGIN_CACHES));
    CHECK_FALSE(is_worth_serving(EMM_PLUGIN_STREAM_ORDERED));
    CHECK_FALSE(is_worth_serving(0));
}

TEST_CASE("a high-water mark is that since a moment, or of now") {
    CHECK(high_since(0, 100, 60) == 100);
    CHECK(high_since(100, 100, 60) == 60);
    CHECK(high_since(100, 120, 60) == 120);
}
