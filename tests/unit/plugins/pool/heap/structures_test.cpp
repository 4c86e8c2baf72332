// Behaviour: the pool's data structures by themselves, each beside a naive model.
#include "catch.h"

#include "heap/slabs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

using namespace emm::pool;

TEST_CASE("the tree of sizes finds what an ordered set finds") {
    std::mt19937 random{1};
    std::vector<SizeNode> nodes(2000);
    std::set<std::pair<uint64_t, uint64_t>> model;
    SizeTree tree;
    for (int i = 0; i < 50000; i++) {
        const size_t n = random() % nodes.size();
        SizeNode &node = nodes[n];
        if (node.linked()) {
            model.erase({node.size, node.address});
            tree.remove(node);
        } else {
            tree.insert(node, 1 + random() % 500, n);
            model.insert({node.size, node.address});
        }
        const uint64_t wanted = random() % 520;
        const auto expected = model.lower_bound({wanted, 0});
        const SizeNode *found = tree.best(wanted);
        REQUIRE((found == nullptr) == (expected == model.end()));
        if (found) {
            REQUIRE(std::pair(found->size, found->address) == *expected);
            const auto next = std::next(expected);
            const SizeNode *after = tree.after(*found);
            REQUIRE((after == nullptr) == (next == model.end()));
            REQUIRE((!after || std::pair(after->size, after->address) == *next));
        }
        REQUIRE((model.empty() || tree.largest()->size == model.rbegin()->first));
    }
}

TEST_CASE("as many block records can be taken as were reserved") {
    BlockStore store;
    store.reserve(1000);
    std::set<const Block *> records;
    for (int i = 0; i < 1000; i++) {
        records.insert(store.take());
    }
    CHECK(records.size() == 1000);
}

TEST_CASE("remnants are overlooked until they are sorted in, and never lost") {
    FreePool common{Order::anyone};
    TagClock clock;
    Heap heap(common, clock);
    heap.set_remnants_apart();
    const uint64_t base = 0x7000'0000'0000, size = 2 * segment_granule;
    Segment segment(base, size, base, size);
    heap.prepare(segment);
    heap.add(segment);
    FreePool pool;
    pool.registered = true;
    const auto take = [&](uint64_t bytes) {
        heap.reserve_record();
        return heap.take(pool, bytes);
    };
    Block *const first = take(small_limit), *const second = take(size - 2 * small_limit);
    CHECK(heap.largest_free() == small_limit);
    CHECK(take(granule) == nullptr);
    heap.give(*first, pool); // a remnant for the stream only, and one for all
    CHECK(take(granule) == nullptr);
    CHECK(heap.fault() == "");
    heap.sort_remnants_in();
    CHECK(heap.fault() == "");
    Block *const one = take(small_limit), *const other = take(small_limit);
    REQUIRE((one && other));
    for (Block *block : {one, other, second}) {
        heap.give(*block, pool);
    }
    heap.complete(pool, clock.now());
    CHECK(heap.largest_free() == size);
    heap.forget_all();
}

TEST_CASE("the page map knows each page's segment, and no other page") {
    PageMap map;
    const uint64_t base = 0x7f12'0000'0000, high = uint64_t(1) << 56;
    const auto make = [&map](uint64_t from, uint64_t pages) {
        auto segment =
            std::make_unique<Segment>(from, pages * segment_granule, from, pages * segment_granule);
        map.reserve(from, segment->size);
        map.set(from, segment->size, segment.get());
        return segment;
    };
    const auto one = make(base, 5), two = make(base + 5 * segment_granule, 4097),
               three = make(high, 1);
    CHECK(map.find(base - 1) == nullptr);
    CHECK(map.find(base) == one.get());
    CHECK(map.find(base + 5 * segment_granule - 1) == one.get());
    CHECK(map.find(base + 5 * segment_granule) == two.get());
    CHECK(map.find(base + 5002 * segment_granule) == nullptr);
    CHECK(map.find(high + 5) == three.get());
    const uint64_t address = base + 4 * segment_granule + 3 * granule;
    one->own(address, 7);
    CHECK(map.page(address)->owner(address) == 7);
    CHECK(map.page(address)->owner(address + granule) == 0);
    CHECK(map.find(~uint64_t(0)) == nullptr);
    map.set(base, 5 * segment_granule, nullptr);
    CHECK(map.find(base) == nullptr);
    CHECK(map.page(address)->owner(address) == 0);
}

TEST_CASE("each size has the smallest class that holds it") {
    for (uint64_t size = 1; size <= slab_limit; size++) {
        const unsigned index = class_of(size);
        REQUIRE(index < slab_classes);
        REQUIRE(class_size(index) >= size);
        REQUIRE((index == 0 || class_size(index - 1) < size));
        REQUIRE(class_size(index) % granule == 0);
    }
}

namespace {

// The work that each granule of one segment waits for: the naive truth about a heap.
class Model {
public:
    explicit Model(size_t granules) : owner_(granules, nullptr), tag_(granules), live_(granules) {}

    void take(const Segment &segment, const Block &block, const FreePool &pool) {
        each(segment, block, [&](size_t i) {
            REQUIRE(!live_[i]);
            REQUIRE((owner_[i] == nullptr || owner_[i] == &pool));
            live_[i] = true;
        });
    }
    void give(const Segment &segment, const Block &block, const FreePool *pool, uint64_t tag) {
        each(segment, block, [&](size_t i) {
            REQUIRE(live_[i]);
            live_[i] = false;
            owner_[i] = pool;
            tag_[i] = tag;
        });
    }
    void complete(const FreePool &pool, uint64_t tag) {
        for (size_t i = 0; i < owner_.size(); i++) {
            owner_[i] = owner_[i] == &pool && tag_[i] <= tag && !live_[i] ? nullptr : owner_[i];
        }
    }

private:
    template <class Function>
    static void each(const Segment &segment, const Block &block, Function function) {
        for (uint64_t i = segment.index(block.begin); i <= segment.index(block.end() - 1); i++) {
            function(i);
        }
    }
    std::vector<const FreePool *> owner_;
    std::vector<uint64_t> tag_;
    std::vector<bool> live_;
};

} // namespace

TEST_CASE("an address within an allocation leads to where it begins") {
    FreePool common{Order::anyone};
    TagClock clock;
    Heap heap(common, clock);
    const uint64_t base = 0x7000'0000'0000, size = 16 * segment_granule;
    Segment segment(base, size, base, size);
    heap.prepare(segment);
    heap.add(segment);
    FreePool pool;
    pool.registered = true;
    std::mt19937_64 random{1};
    std::vector<Block *> live;
    for (const uint64_t bytes : {3 * segment_granule, uint64_t(5) << 10, segment_granule / 2,
                                 7 * segment_granule + granule, segment_granule - granule}) {
        heap.reserve_record();
        live.push_back(heap.take(pool, bytes));
        live.back()->loan.begin(bytes - 100);
    }
    for (int freed = 0; freed < 2; freed++) {
        for (int i = 0; i < 2000; i++) {
            const uint64_t address = base + random() % size;
            const Block *found = heap.around(address).block;
            const Block *expected = nullptr;
            for (const Block *block : live) {
                const bool within = address - block->begin < block->size - 100;
                expected = within && block->loan.size() != 0 ? block : expected;
            }
            REQUIRE(found == expected);
        }
        live[3]->loan.end();
        heap.give(*live[3], pool);
        live.erase(live.begin() + 3);
    }
    for (Block *block : live) {
        heap.give(*block, pool);
    }
    heap.complete(pool, clock.now());
    heap.forget_all();
}

TEST_CASE("what is complete stays one part while pieces of it are freed with no stream") {
    FreePool common{Order::anyone}, unordered{Order::unordered};
    TagClock clock;
    Heap heap(common, clock);
    const uint64_t base = 0x7000'0000'0000, size = 2 * segment_granule, piece = 64 << 10;
    Segment segment(base, size, base, size);
    heap.prepare(segment);
    heap.add(segment);
    for (uint64_t used = piece; used <= size; used += piece) {
        heap.reserve_record();
        Block *block = heap.take(common, piece);
        REQUIRE(block);
        heap.give(*block, unordered);
        CHECK(heap.largest_free() == size - used);
        CHECK(heap.fault() == "");
    }
    heap.forget_all();
}

TEST_CASE("neighbours freed with no stream are one block if they wait for the same event") {
    FreePool common{Order::anyone}, unordered{Order::unordered};
    TagClock clock;
    Heap heap(common, clock);
    const uint64_t base = 0x7000'0000'0000, size = 2 * segment_granule;
    Segment segment(base, size, base, size);
    heap.prepare(segment);
    heap.add(segment);
    Block *blocks[4];
    for (Block *&block : blocks) {
        heap.reserve_record();
        block = heap.take(common, size / 4);
    }
    Block *const first = segment.first;
    heap.give(*first, unordered);
    heap.give(*first->right, unordered);
    CHECK(segment.first->size == size / 2);
    clock.end_tag(); // the others wait for a later event
    heap.give(*segment.first->right, unordered);
    CHECK(segment.first->size == size / 2);
    CHECK(heap.fault() == "");
    heap.forget_all();
}

TEST_CASE("memory on its way behind unmapped addresses is no part of what is unmapped beside it") {
    FreePool common{Order::anyone};
    TagClock clock;
    Heap heap(common, clock);
    const uint64_t base = 0x7000'0000'0000, size = 16 * segment_granule;
    Segment segment(base, size, base, size);
    segment.pieces = Pieces(base, size);
    heap.prepare(segment);
    heap.add_addresses(segment);
    const auto take = [&] {
        heap.reserve_record();
        const uint64_t at = heap.room_alone(segment_granule, Zone::large).begin(segment_granule);
        return heap.take_unmapped(at, at + segment_granule);
    };
    Block *const first = take(), *const second = take();
    CHECK(first->state == State::waiting);
    CHECK(second->state == State::waiting);
    heap.make_unmapped(*second);
    CHECK(first->size == segment_granule);
    CHECK(heap.fault() == "");
    heap.make_unmapped(*first);
    heap.forget_all();
}

TEST_CASE("random traffic: the heap gives only what the naive model allows, and stays whole") {
    for (uint32_t seed = 1; seed <= 20; seed++) {
        std::mt19937 random{seed};
        FreePool common{Order::anyone};
        TagClock clock;
        Heap heap(common, clock);
        const uint64_t base = 0x7000'0000'0000, size = 4 * segment_granule;
        Segment segment(base, size, base, size);
        heap.prepare(segment);
        heap.add(segment);
        FreePool a, b, unordered{Order::unordered};
        a.registered = b.registered = true;
        Model model(size / granule);
        std::vector<Block *> live;
        for (int i = 0; i < 2000; i++) {
            FreePool *const takers[] = {&a, &b, &common};
            FreePool *const givers[] = {&a, &b, &unordered};
            const unsigned dice = random() % 100;
            if (dice < 50) {
                FreePool &pool = *takers[random() % 3];
                heap.reserve_record();
                const uint64_t bytes = (1 + random() % (dice < 5 ? 4000 : 200)) * granule;
                if (Block *block = heap.take(pool, bytes)) {
                    REQUIRE(block->size == bytes);
                    model.take(segment, *block, pool);
                    REQUIRE(heap.starting_at(block->begin).block == block);
                    live.push_back(block);
                }
            } else if (dice < 95 && !live.empty()) {
                std::swap(live[random() % live.size()], live.back());
                FreePool &pool = *givers[random() % 3];
                model.give(segment, *live.back(), &pool, clock.now());
                heap.give(*live.back(), pool);
                live.pop_back();
            } else {
                FreePool &pool = *givers[random() % 3];
                const uint64_t tag = clock.end_tag() - random() % 2;
                model.complete(pool, tag);
                heap.complete(pool, tag);
            }
            REQUIRE(heap.fault() == "");
            uint64_t taken = 0;
            for (const Block *block : live) {
                taken += block->size;
            }
            REQUIRE(heap.idle_in(Zone::large) + heap.quarantined() + taken == size);
        }
        for (Block *block : live) {
            heap.give(*block, a);
        }
        for (FreePool *pool : {&a, &b, &unordered}) {
            heap.complete(*pool, clock.now());
        }
        CHECK(heap.first_whole() == &segment);
        CHECK(heap.largest_free() == size);
        CHECK(heap.quarantined() == 0);
        heap.forget_all();
    }
}
