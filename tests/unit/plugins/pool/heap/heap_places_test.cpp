#include "heap/heap.h"

#include "catch.h"

#include <algorithm>
#include <map>
#include <random>

using namespace emm::pool;

namespace {

constexpr uint64_t paged_base = 0x7000'0000'0000;

// A heap of pages and the pieces behind them; two streams' free pools.
struct Paged {
    explicit Paged(uint64_t pages)
        : segment(paged_base, pages * page_bytes, paged_base, pages * page_bytes) {
        segment.pieces = Pieces(paged_base, segment.size);
        heap.prepare(segment);
        heap.add_addresses(segment);
    }
    ~Paged() { heap.forget_all(); }

    // New memory, as one block in the heap.
    bool add(uint64_t pages) {
        heap.reserve_records(4);
        const Heap::Room room = heap.room_alone(pages * page_bytes, Zone::large);
        if (!room.range) {
            return false;
        }
        Block *block = heap.take_unmapped(room, pages * page_bytes);
        segment.pieces.add({block->begin, block->size, ++handles});
        heap.give(*block, common);
        return true;
    }
    Block *take(FreePool &pool, uint64_t bytes) {
        heap.reserve_record();
        return heap.take(pool, bytes);
    }

    FreePool common{Order::anyone}, mine, theirs, unordered{Order::unordered};
    TagClock clock;
    Heap heap{common, clock};
    Segment segment;
    uint64_t handles = 0;
};

std::vector<IdlePiece> by_address(std::vector<IdlePiece> pieces) {
    std::sort(pieces.begin(), pieces.end(), [](const IdlePiece &a, const IdlePiece &b) {
        return a.piece.address < b.piece.address;
    });
    return pieces;
}

} // namespace

TEST_CASE("a piece is pending for the pools in order before the request, and for no other") {
    Paged paged(64);
    REQUIRE(paged.add(4));
    Block *block = paged.take(paged.mine, 4 * page_bytes);
    paged.heap.give(*block, paged.theirs);
    const uint64_t tag = paged.clock.end_tag();
    const auto found = [&](const std::vector<Heap::Ordered> &ordered) {
        return paged.heap.idle_pieces(nullptr, 100, ordered).size();
    };
    CHECK(found({}) == 0);
    CHECK(found({{&paged.mine, UINT64_MAX}}) == 0);
    CHECK(found({{&paged.mine, UINT64_MAX}, {&paged.theirs, tag - 1}}) == 0);
    CHECK(found({{&paged.mine, UINT64_MAX}, {&paged.theirs, tag}}) == 1);
    CHECK(paged.heap.idle_pieces(nullptr, 100, {{&paged.theirs, tag}}).front().pending);
    paged.heap.complete(paged.theirs, tag);
    CHECK(found({}) == 1);
}

TEST_CASE("a piece with a part that is not free, or freed with no stream, keeps its place") {
    Paged paged(64);
    REQUIRE(paged.add(4));
    Block *front = paged.take(paged.mine, page_bytes / 2);
    Block *rest = paged.take(paged.mine, 7 * page_bytes / 2);
    paged.heap.give(*rest, paged.mine);
    const std::vector<Heap::Ordered> ordered = {{&paged.mine, UINT64_MAX}};
    CHECK(paged.heap.idle_pieces(nullptr, 100, ordered).empty());
    front->state = State::waiting; // for an export to end
    CHECK(paged.heap.idle_pieces(nullptr, 100, ordered).empty());
    paged.heap.give(*front, paged.unordered);
    CHECK(paged.heap.idle_pieces(nullptr, 100, ordered).empty());
    paged.heap.complete(paged.unordered, paged.clock.now());
    CHECK(paged.heap.idle_pieces(nullptr, 100, ordered).size() == 1);
}

TEST_CASE("random traffic with second places: each page has one owner, and the heap stays whole") {
    for (uint32_t seed = 1; seed <= 20; seed++) {
        std::mt19937 random{seed};
        Paged paged(256);
        Heap &heap = paged.heap;
        heap.set_most_places(2 + seed % 3);
        FreePool *const pools[] = {&paged.mine, &paged.theirs, &paged.unordered};
        std::vector<Block *> live;
        uint64_t pages = 0;
        for (int i = 0; i < 1500; i++) {
            const unsigned dice = random() % 100;
            const uint64_t bytes = (1 + random() % (dice % 2 ? 12 : 3000)) * (page_bytes / 1024);
            FreePool &pool = *pools[random() % 2];
            if (dice < 10 && pages < 60) {
                const uint64_t more = 1 + random() % 8;
                pages += paged.add(more) ? more : 0;
            } else if (dice < 50) {
                if (Block *block = paged.take(pool, bytes)) {
                    live.push_back(block);
                }
            } else if (dice < 80 && !live.empty()) {
                std::swap(live[random() % live.size()], live.back());
                FreePool &giver = *pools[random() % 3];
                giver.newest = paged.clock.now();
                heap.give(*live.back(), giver);
                live.pop_back();
            } else if (dice < 85) {
                const uint64_t tag = paged.clock.end_tag();
                heap.complete(*pools[random() % 3], tag);
            } else {
                std::vector<Heap::Ordered> ordered = {{&pool, UINT64_MAX}};
                if (random() % 2) {
                    ordered.push_back({pools[&pool == pools[0]], paged.clock.now()});
                }
                std::vector<IdlePiece> chosen;
                for (const IdlePiece &each : heap.idle_pieces(nullptr, 100, ordered)) {
                    if (each.pending && random() % 3 > 0 && chosen.size() < 8) {
                        chosen.push_back(each);
                    }
                }
                chosen = by_address(chosen);
                uint64_t sum = 0;
                for (const IdlePiece &each : chosen) {
                    sum += each.piece.bytes;
                }
                const Heap::Room room = heap.room_alone(sum, Zone::large);
                if (sum == 0 || !room.range) {
                    continue;
                }
                heap.reserve_records(2 * chosen.size() + 5);
                std::vector<Block *> ending;
                ending.reserve(heap.vacated_places());
                const std::vector<Block *> vacated = heap.take_pieces(chosen, pool);
                heap.take_vacated(chosen, ending);
                Block *target = heap.take_unmapped(room, sum);
                bool fails = random() % 8 == 0;
                for (Block *block : ending) {
                    REQUIRE(!block->dirty()); // no work uses it
                    if (random() % 8 == 0) {
                        heap.keep_place(*block); // as if the driver refused
                        fails = true;
                        continue;
                    }
                    paged.segment.pieces.remove(paged.segment.pieces.at(block->begin));
                    heap.make_unmapped(*block);
                }
                uint64_t at = target->begin;
                for (Block *block : vacated) {
                    REQUIRE(block->state == State::vacated);
                    Piece piece = paged.segment.pieces.at(block->begin);
                    if (fails) {
                        heap.reoccupy(*block);
                        continue;
                    }
                    piece.other = piece.address;
                    piece.address = at;
                    at += piece.bytes;
                    paged.segment.pieces.add(piece);
                    heap.link(*block, piece.address);
                }
                if (fails) {
                    heap.make_unmapped(*target);
                } else {
                    heap.give(*target, pool);
                }
            }
            REQUIRE(heap.fault() == "");
            std::map<uint64_t, int> owners;
            for (const Block *b = paged.segment.first; b; b = b->right) {
                if (b->state != State::vacated && b->state != State::unmapped) {
                    for (uint64_t a = round_up(b->begin, page_bytes); a < b->end();
                         a += page_bytes) {
                        const Piece piece = paged.segment.pieces.at(a);
                        REQUIRE(piece);
                        owners[piece.handle * 1000 + (a - piece.address) / page_bytes]++;
                    }
                }
            }
            for (const auto &owner : owners) {
                REQUIRE(owner.second == 1);
            }
        }
        for (Block *block : live) {
            heap.give(*block, paged.mine);
        }
    }
}
