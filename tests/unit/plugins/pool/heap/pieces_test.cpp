#include "heap/pieces.h"

#include "catch.h"

#include <vector>

using namespace emm::pool;

namespace {

constexpr uint64_t base = uint64_t(1) << 40;

uint64_t page(uint64_t number) {
    return base + number * page_bytes;
}

Piece piece(uint64_t first, uint64_t pages, uint64_t handle) {
    return {page(first), pages * page_bytes, handle};
}

} // namespace

TEST_CASE("every byte of a piece leads to it, and no other byte does") {
    Pieces pieces(base, 64 * page_bytes);
    pieces.add(piece(2, 3, 7));
    for (const uint64_t address : {page(2), page(3) + 5, page(5) - 1}) {
        const Piece found = pieces.at(address);
        CHECK((found.address == page(2) && found.bytes == 3 * page_bytes && found.handle == 7));
    }
    CHECK_FALSE(pieces.at(page(2) - 1));
    CHECK_FALSE(pieces.at(page(5)));
    pieces.remove(piece(2, 3, 7));
    CHECK_FALSE(pieces.at(page(3)));
}

TEST_CASE("only a piece that lies within a range as a whole is found there") {
    Pieces pieces(base, 64 * page_bytes);
    pieces.add(piece(0, 4, 1));
    pieces.add(piece(4, 2, 2));
    pieces.add(piece(6, 1, 3));
    CHECK(pieces.first_within(page(0), page(7)).handle == 1);
    CHECK(pieces.first_within(page(1), page(7)).handle == 2);
    CHECK(pieces.first_within(page(5), page(7)).handle == 3);
    CHECK_FALSE(pieces.first_within(page(0), page(3)));
    CHECK_FALSE(pieces.first_within(page(1), page(5)));
    CHECK_FALSE(pieces.first_within(page(1), page(4)));
}

TEST_CASE("all pieces are visited in the order of their addresses") {
    Pieces pieces(base, 64 * page_bytes);
    CHECK(pieces.has_range());
    CHECK_FALSE(Pieces().has_range());
    pieces.add(piece(60, 4, 3));
    pieces.add(piece(1, 1, 1));
    pieces.add(piece(2, 30, 2));
    std::vector<uint64_t> handles;
    pieces.each([&](const Piece &each) { handles.push_back(each.handle); });
    CHECK(handles == std::vector<uint64_t>{1, 2, 3});
}
