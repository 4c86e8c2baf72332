#include "heap/heap.h"

#include "catch.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace emm::pool;

namespace {

int allocations_left = -1; // until host memory runs out; below 0: never

} // namespace

[[gnu::noinline]] void *operator new(size_t size) {
    if (allocations_left == 0) {
        throw std::bad_alloc();
    }
    allocations_left -= allocations_left > 0 ? 1 : 0;
    void *memory = std::malloc(size);
    return memory ? memory : throw std::bad_alloc();
}

// As the standard library's does; a sanitizer's own would not pair with the deletes below.
[[gnu::noinline]] void *operator new(size_t size, const std::nothrow_t &) noexcept {
    try {
        return ::operator new(size);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

[[gnu::noinline]] void operator delete(void *memory) noexcept {
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}

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

    bool is_unmapped(uint64_t begin, uint64_t end) const {
        for (; begin < end && !segment.pieces.at(begin); begin += page_bytes) {
        }
        return begin >= end;
    }
    // New memory, as one block in the heap.
    bool add(uint64_t pages) {
        heap.reserve_records(4);
        const Heap::Room room = heap.room_alone(pages * page_bytes, Zone::large);
        const uint64_t begin = room.range ? room.begin(pages * page_bytes) : 0;
        const uint64_t end = begin + pages * page_bytes;
        if (!room.range || !is_unmapped(begin, end)) {
            return false;
        }
        Block *block = heap.take_unmapped(begin, end);
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

// Whether an owner of a granule there does: the owners' array, by its host pages.
bool takes_host_memory(const Segment &segment, uint64_t begin, uint64_t bytes) {
    const auto host_page = uint64_t(sysconf(_SC_PAGESIZE));
    const auto *where = segment.owners.from(segment.index(begin));
    std::vector<unsigned char> resident(bytes / granule * sizeof *where / host_page);
    REQUIRE(mincore(const_cast<std::atomic<uintptr_t> *>(where), resident.size() * host_page,
                    resident.data()) == 0);
    return std::any_of(resident.begin(), resident.end(), [](auto each) { return each & 1; });
}

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

namespace {

uint64_t bytes_of(const std::vector<IdlePiece> &pieces) {
    uint64_t bytes = 0;
    for (const IdlePiece &each : pieces) {
        bytes += each.piece.bytes;
    }
    return bytes;
}

// Moves pieces as a fill does: they get further places side by side. Ends places in the way, those
// that a piece has too many of, and `ends`; a failing driver maps nothing.
void move(
    Paged &paged, const std::vector<IdlePiece> &chosen, uint64_t begin, FreePool &pool,
    std::vector<uint64_t> ends = {}, const std::function<bool()> &fails = [] { return false; }) {
    Heap &heap = paged.heap;
    const uint64_t end = begin + bytes_of(chosen);
    for (uint64_t at = begin; at < end; at += page_bytes) {
        if (const Piece piece = paged.segment.pieces.at(at)) {
            ends.push_back(piece.address);
        }
    }
    for (const IdlePiece &each : chosen) {
        heap.add_surplus_place(each.piece, ends);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    heap.reserve_records(2 * (chosen.size() + ends.size()) + 5);
    const Heap::Promise promise(heap, chosen.size() + ends.size());
    const std::vector<Block *> left = heap.take_pieces(chosen, pool);
    Block *target = heap.take_unmapped(begin, end);
    std::vector<Block *> rests;
    const uint64_t taken_begin = target->begin, taken_end = target->end();
    if (taken_begin < begin) {
        rests.push_back(target);
        target = heap.split(*target, begin - taken_begin);
    }
    if (end < taken_end) {
        rests.push_back(heap.split(*target, end - begin));
    }
    for (const uint64_t place : ends) {
        Block *block = heap.begin_to_end(place, taken_begin <= place && place < taken_end);
        rests.insert(rests.end(), block ? 1 : 0, block);
    }
    bool failed = fails();
    for (const uint64_t place : ends) {
        failed = failed || fails();
        failed ? heap.keep_place(place) : heap.end_place(place);
    }
    for (Block *block : rests) {
        heap.make_unmapped(*block);
    }
    uint64_t at = begin;
    for (Block *block : left) {
        const Piece piece = paged.segment.pieces.at(block->begin);
        if (failed) {
            heap.reoccupy(*block);
            continue;
        }
        paged.segment.pieces.add({at, piece.bytes, piece.handle});
        heap.link(*block, at);
        at += piece.bytes;
    }
    if (failed) {
        heap.make_unmapped(*target);
    } else {
        heap.give(*target, pool);
    }
}

// An idle place to which one of the pieces may go back; 0: none.
uint64_t place_of(const Heap &heap, const IdlePiece &idle) {
    std::vector<uint64_t> places;
    heap.add_further_places(idle.piece, places);
    for (const uint64_t place : places) {
        if (heap.piece_at(place).role == Role::idle) {
            return place;
        }
    }
    return 0;
}

} // namespace

TEST_CASE("a former place is idle once its work is complete, and not before") {
    Paged paged(64);
    REQUIRE(paged.add(2));
    Block *block = paged.take(paged.mine, 2 * page_bytes);
    const uint64_t former = block->begin;
    paged.heap.give(*block, paged.mine);
    const std::vector<IdlePiece> idle =
        paged.heap.idle_pieces(nullptr, 100, {{&paged.mine, UINT64_MAX}});
    REQUIRE(idle.size() == 1);
    const uint64_t begin = paged.heap.room_alone(2 * page_bytes, Zone::large).begin(2 * page_bytes);
    move(paged, idle, begin, paged.mine);
    CHECK(paged.heap.idle_places().empty());
    CHECK(paged.heap.piece_at(former).role == Role::former);
    CHECK(paged.heap.fault() == "");
    paged.heap.complete(paged.mine, paged.clock.end_tag());
    CHECK(paged.heap.idle_places() == std::vector<uint64_t>{former});
    CHECK(paged.heap.piece_at(former).role == Role::idle);
    CHECK(paged.heap.fault() == "");
}

TEST_CASE("the addresses that memory leaves take no host memory for what began there") {
    Paged paged(64);
    REQUIRE(paged.add(4));
    Heap &heap = paged.heap;
    const uint64_t first = heap.idle_pieces(nullptr, 100).front().piece.address;
    const auto use = [&] {
        std::vector<Block *> blocks;
        while (Block *block = paged.take(paged.mine, page_bytes / 8)) {
            blocks.push_back(block);
        }
        for (Block *block : blocks) {
            heap.give(*block, paged.mine);
        }
        return blocks.size();
    };
    CHECK(use() == 32);
    CHECK(takes_host_memory(paged.segment, first, 4 * page_bytes));
    const uint64_t second = heap.room_alone(4 * page_bytes, Zone::large).begin(4 * page_bytes);
    move(paged, heap.idle_pieces(nullptr, 100, {{&paged.mine, UINT64_MAX}}), second, paged.mine);
    CHECK(takes_host_memory(paged.segment, first, 4 * page_bytes)); // work may still use it
    heap.complete(paged.mine, paged.clock.end_tag());
    CHECK(heap.idle_places() == std::vector<uint64_t>{first});
    CHECK(!takes_host_memory(paged.segment, first, 4 * page_bytes));
    CHECK(use() == 32);
    heap.complete(paged.mine, paged.clock.end_tag());
    heap.reserve_records(2);
    for (Block *block : heap.take_pieces(heap.idle_pieces(nullptr, 100), paged.mine)) {
        paged.segment.pieces.remove(paged.segment.pieces.at(block->begin)); // as in a trim
        heap.make_unmapped(*block);
    }
    CHECK(!takes_host_memory(paged.segment, paged_base, paged.segment.size));
}

TEST_CASE("the look at the invariants finds two places of a piece with different handles") {
    Paged paged(64);
    REQUIRE(paged.add(2));
    const std::vector<IdlePiece> idle = paged.heap.idle_pieces(nullptr, 100);
    const uint64_t first = idle.front().piece.address;
    const uint64_t begin = paged.heap.room_alone(2 * page_bytes, Zone::large).begin(2 * page_bytes);
    move(paged, idle, begin, paged.common);
    CHECK(paged.heap.fault() == "");
    const uint64_t handle = paged.segment.pieces.at(first).handle;
    paged.segment.pieces.set_handle(first, handle + 1);
    CHECK(paged.heap.fault().find("the places of a piece disagree") != std::string::npos);
    paged.segment.pieces.set_handle(first, handle);
}

TEST_CASE("a piece goes back to a former place, and leaves one behind") {
    Paged paged(64);
    REQUIRE(paged.add(2));
    Heap &heap = paged.heap;
    std::vector<IdlePiece> idle = heap.idle_pieces(nullptr, 100);
    const uint64_t first = idle.front().piece.address;
    const uint64_t second = heap.room_alone(2 * page_bytes, Zone::large).begin(2 * page_bytes);
    move(paged, idle, second, paged.common);
    CHECK(heap.idle_places() == std::vector<uint64_t>{first});
    heap.go_back(heap.idle_pieces(nullptr, 100), first, paged.mine);
    CHECK(heap.idle_places() == std::vector<uint64_t>{second});
    CHECK(heap.piece_at(first).role == Role::owner);
    CHECK(heap.fault() == "");
    Block *block = paged.take(paged.theirs, 2 * page_bytes); // complete: of use to all
    REQUIRE(block);
    CHECK(block->begin == first);
    heap.give(*block, paged.theirs);
    heap.go_back(heap.idle_pieces(nullptr, 100, {{&paged.theirs, UINT64_MAX}}), second,
                 paged.theirs);
    CHECK(heap.piece_at(first).role == Role::former);
    CHECK(!paged.take(paged.mine, 2 * page_bytes)); // theirs, until their work is complete
    CHECK(heap.fault() == "");
}

TEST_CASE(
    "a piece that cannot go back for want of host memory leaves no promise of places behind") {
    Paged paged(64);
    REQUIRE(paged.add(2));
    Heap &heap = paged.heap;
    const uint64_t first = heap.idle_pieces(nullptr, 100).front().piece.address;
    move(paged, heap.idle_pieces(nullptr, 100),
         heap.room_alone(2 * page_bytes, Zone::large).begin(2 * page_bytes), paged.common);
    const std::vector<IdlePiece> idle = heap.idle_pieces(nullptr, 100);
    heap.go_back(idle, first, paged.mine);
    const size_t room = heap.idle_places().capacity();
    unsigned refused = 0;
    for (unsigned i = 0; i < 100; i++) {
        const uint64_t place = heap.idle_places().front();
        const std::vector<IdlePiece> again = heap.idle_pieces(nullptr, 100);
        allocations_left = int(i % 8);
        try {
            heap.go_back(again, place, paged.mine);
        } catch (const std::bad_alloc &) {
            refused++;
        }
        allocations_left = -1;
        CHECK(heap.fault() == "");
    }
    CHECK(refused > 20);
    CHECK(refused < 100);
    CHECK(heap.idle_places().capacity() == room);
}

TEST_CASE("of the idle places of a piece that has as many as it may the oldest ends") {
    Paged paged(64);
    paged.heap.set_most_places(3);
    REQUIRE(paged.add(1));
    std::vector<uint64_t> places;
    const auto surplus = [&] {
        std::vector<uint64_t> ends;
        paged.heap.add_surplus_place(paged.heap.idle_pieces(nullptr, 100).front().piece, ends);
        return ends;
    };
    for (int i = 0; i < 4; i++) {
        const std::vector<IdlePiece> idle = paged.heap.idle_pieces(nullptr, 100);
        CHECK(surplus() == (i < 2 ? std::vector<uint64_t>{} : std::vector{places[size_t(i) - 2]}));
        places.push_back(idle.front().piece.address);
        move(paged, idle, paged_base + (10 + uint64_t(i)) * page_bytes, paged.common);
        CHECK(paged.heap.fault() == "");
    }
    CHECK(paged.heap.idle_places() == std::vector{places[2], places[3]});
    paged.heap.set_most_places(1);
    places.clear();
    paged.heap.add_further_places(paged.heap.idle_pieces(nullptr, 100).front().piece, places);
    CHECK(places.size() == 2);
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
                    if (random() % 3 > 0 && chosen.size() < 8) {
                        chosen.push_back(each);
                    }
                }
                chosen = by_address(chosen);
                if (!chosen.empty() && random() % 2 && place_of(heap, chosen.front()) != 0) {
                    const uint64_t place = place_of(heap, chosen.front());
                    heap.go_back({chosen.front()}, place, pool);
                } else if (const uint64_t sum = bytes_of(chosen)) {
                    Heap::Room room = heap.room_for(pool, sum, Zone::large);
                    room = room.range && room.range->size >= sum
                               ? room
                               : heap.room_alone(sum, Zone::large);
                    if (!room.range) {
                        continue;
                    }
                    std::vector<uint64_t> ends;
                    if (random() % 4 == 0 && !heap.idle_places().empty()) {
                        ends.push_back(heap.idle_places().front());
                    }
                    move(paged, chosen, room.begin(sum), pool, ends,
                         [&] { return random() % 8 == 0; });
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
