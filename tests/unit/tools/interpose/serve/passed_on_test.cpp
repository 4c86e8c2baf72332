#include "serve/passed_on.h"

#include "catch.h"

using namespace emm::run;

namespace {

CUDA_ARRAY3D_DESCRIPTOR described(size_t width, size_t height, size_t depth, unsigned format,
                                  unsigned channels, unsigned flags = 0) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    descriptor.Width = width;
    descriptor.Height = height;
    descriptor.Depth = depth;
    descriptor.Format = CUarray_format(format);
    descriptor.NumChannels = channels;
    descriptor.Flags = flags;
    return descriptor;
}

constexpr unsigned bc1 = 0x91, bc7 = 0x9d, normalized_16x4 = 0xc5, unknown = 0xfe;

CUcontext context_number(uintptr_t number) {
    return reinterpret_cast<CUcontext>(number);
}

} // namespace

TEST_CASE("an array has the bytes of its elements, of one, two or three dimensions") {
    CHECK(array_bytes(described(100, 0, 0, CU_AD_FORMAT_FLOAT, 1)) == 400);
    CHECK(array_bytes(described(100, 10, 0, CU_AD_FORMAT_HALF, 4)) == 8000);
    CHECK(array_bytes(described(100, 10, 3, CU_AD_FORMAT_UNSIGNED_INT8, 2)) == 6000);
    CHECK(array_bytes(described(7, 0, 5, CU_AD_FORMAT_SIGNED_INT32, 1, CUDA_ARRAY3D_LAYERED)) ==
          140);
    CHECK(array_bytes(described(10, 10, 0, normalized_16x4, 4)) == 800);
}

TEST_CASE("block-compressed arrays have whole blocks of four by four") {
    CHECK(array_bytes(described(8, 8, 0, bc1, 4)) == 4 * 8);
    CHECK(array_bytes(described(9, 8, 0, bc1, 4)) == 6 * 8);
    CHECK(array_bytes(described(1, 1, 0, bc7, 4)) == 16);
}

TEST_CASE("arrays that are mapped later, or of an unknown format, have no bytes of their own") {
    CHECK(array_bytes(described(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)) == 0);
    CHECK(array_bytes(described(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_DEFERRED_MAPPING)) ==
          0);
    CHECK(array_bytes(described(8, 8, 0, unknown, 1)) == 0);
}

TEST_CASE(
    "each level of a mipmapped array has half the extents of the one before, layers excepted") {
    const unsigned format = CU_AD_FORMAT_UNSIGNED_INT8;
    CHECK(mipmapped_bytes(described(16, 8, 0, format, 1), 1) == 128);
    CHECK(mipmapped_bytes(described(16, 8, 0, format, 1), 5) == 128 + 32 + 8 + 2 + 1);
    CHECK(mipmapped_bytes(described(8, 8, 8, format, 1), 2) == 512 + 64);
    CHECK(mipmapped_bytes(described(8, 8, 8, format, 1, CUDA_ARRAY3D_LAYERED), 2) == 512 + 128);
    CHECK(mipmapped_bytes(described(8, 8, 6, format, 1, CUDA_ARRAY3D_CUBEMAP), 2) == 384 + 96);
}

TEST_CASE("a mipmapped array has at least one level, and none after that of one element") {
    const unsigned format = CU_AD_FORMAT_UNSIGNED_INT8, many = 1000;
    CHECK(mipmapped_bytes(described(16, 8, 0, format, 1), 0) == 128);
    CHECK(mipmapped_bytes(described(16, 8, 0, format, 1), many) == 128 + 32 + 8 + 2 + 1);
    CHECK(mipmapped_bytes(described(5, 0, 0, format, 1), many) == 5 + 2 + 1);
    CHECK(mipmapped_bytes(described(1, 1, 8, format, 1), many) == 8 + 4 + 2 + 1);
    CHECK(mipmapped_bytes(described(2, 2, 8, format, 1, CUDA_ARRAY3D_LAYERED), many) == 32 + 8);
    CHECK(mipmapped_bytes(described(2, 2, 6, format, 1, CUDA_ARRAY3D_CUBEMAP), many) == 24 + 6);
    CHECK(mipmapped_bytes(described(1, 0, 0, format, 1), many) == 1);
}

TEST_CASE("physical memory is known as long as any reference to its handle") {
    PassedOn passed;
    passed.add(Passed::physical, 7, {100});
    CHECK(passed.retain(Passed::physical, 7));
    CHECK_FALSE(passed.retain(Passed::physical, 8)); // another process's, perhaps
    CHECK(passed.release(Passed::physical, 7).references == 2);
    CHECK(passed.charge_of(Passed::physical, 7) == 100);
    CHECK(passed.release(Passed::physical, 7).references == 1);
    CHECK(passed.charge_of(Passed::physical, 7) == 0);
    CHECK(passed.release(Passed::physical, 7).references == 0);
}

TEST_CASE("what the driver refuses to take back is there as before") {
    PassedOn passed;
    passed.add(Passed::physical, 7, {100});
    passed.retain(Passed::physical, 7);
    for (int references = 2; references > 0; references--) {
        const PassedOn::Item item = passed.release(Passed::physical, 7);
        passed.put_back(Passed::physical, 7, item);
        CHECK(passed.charge_of(Passed::physical, 7) == 100);
        CHECK(passed.release(Passed::physical, 7).references == unsigned(references));
    }
    passed.put_back(Passed::physical, 7, passed.release(Passed::physical, 7));
    CHECK(passed.charge_of(Passed::physical, 7) == 0);
}

TEST_CASE("an unmapped range ends all mappings that begin in it") {
    PassedOn passed;
    for (uint64_t at = 0x1000; at < 0x5000; at += 0x1000) {
        passed.add(Passed::mapped, at, {at});
    }
    CHECK(passed.charge_mapped_at(0x2fff) == 0x2000);
    CHECK(passed.charge_mapped_at(0xfff) == 0);
    const PassedOn::Items ended = passed.release_range(Passed::mapped, 0x2000, 0x2000);
    CHECK(ended.size() == 2);
    CHECK(passed.charge_of(Passed::mapped, 0x1000) != 0);
    CHECK(passed.charge_of(Passed::mapped, 0x2000) == 0);
    CHECK(passed.charge_of(Passed::mapped, 0x3000) == 0);
    CHECK(passed.charge_of(Passed::mapped, 0x4000) != 0);
}

TEST_CASE("arrays end with their context, physical memory does not") {
    PassedOn passed;
    passed.add(Passed::array, 1, {17, context_number(1)});
    passed.add(Passed::array, 2, {18, context_number(2)});
    passed.add(Passed::physical, 3, {19});
    const std::vector<PassedOn::Item> ended = passed.end(context_number(1));
    REQUIRE(ended.size() == 1);
    CHECK(ended[0].charge == 17);
    CHECK(passed.end(nullptr).empty());
    CHECK(passed.charge_of(Passed::array, 2) == 18);
    CHECK(passed.charge_of(Passed::physical, 3) == 19);
}
