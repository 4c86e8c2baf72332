#include "policy/growth.h"

#include "catch.h"
#include "sizes.h"

using namespace emm::pool;

namespace {

Allowance held(uint64_t claimed, uint64_t most, uint64_t limit = UINT64_MAX, double slack = 0.125) {
    return {.claimed = claimed, .most = most, .limit = limit, .slack = slack};
}

} // namespace

TEST_CASE("the free slack is a 36th of the peak, and none where none is wanted") {
    CHECK(free_slack(0.125) == 1.0 / 36);
    CHECK(free_slack(0.01) == 0.01);
    CHECK(free_slack(0) == 0);
}

TEST_CASE("new memory is allowed in whole pages, up to the peak and its slack") {
    CHECK(new_bytes(64 * mib, held(1 * gib, 2 * gib), 0) == 64 * mib);
    CHECK(new_bytes(64 * mib, held(2 * gib - 3 * mib, 2 * gib), 0) == 2 * mib);
    CHECK(new_bytes(64 * mib, held(2 * gib, 2 * gib), 0) == 0);
    CHECK(new_bytes(64 * mib, held(2 * gib, 2 * gib), 0.125) == 64 * mib);
    CHECK(new_bytes(gib, held(2 * gib, 2 * gib), 0.125) == 256 * mib);
}

TEST_CASE("new memory never goes beyond the limit") {
    CHECK(new_bytes(64 * mib, held(2 * gib, 2 * gib, 2 * gib + 32 * mib), 0.125) == 32 * mib);
    CHECK(new_bytes(64 * mib, held(2 * gib, 2 * gib, gib), 0.125) == 0);
}

TEST_CASE("a request of a sixteenth of all and more leaves the slack to others") {
    CHECK(may_use_slack(gib / 16 - 1, gib));
    CHECK_FALSE(may_use_slack(gib / 16, gib));
}

TEST_CASE("moving may cost more with every call and every byte asked for") {
    const uint64_t begin = moving_allowance(0, 0);
    CHECK(begin == 10'000'000);
    CHECK(moving_allowance(1000, 0) == begin + 12'000);
    CHECK(moving_allowance(0, gib) == begin + 1024 * 12);
}

TEST_CASE("pieces are a 32nd of the request, a 128th of all at least, up to 64 MiB") {
    CHECK(piece_bytes(256 * mib, held(0, 256 * mib)) == 8 * mib);
    CHECK(piece_bytes(255 * mib, held(0, 255 * mib)) == 4 * mib);
    CHECK(piece_bytes(400 * mib, held(0, 400 * mib)) == 8 * mib);
    CHECK(piece_bytes(2 * mib, held(511 * mib, 511 * mib)) == 2 * mib);
    CHECK(piece_bytes(2 * mib, held(2 * gib, 2 * gib)) == 16 * mib);
    CHECK(piece_bytes(2 * mib, held(40 * gib, 40 * gib)) == 64 * mib);
    CHECK(piece_bytes(2 * mib, held(0, 2 * mib)) == page_bytes);
}

TEST_CASE("while a program fills its memory a piece is all of a request, up to a 32nd of all") {
    const auto filling = [](uint64_t claimed) {
        Allowance allowance = held(claimed, claimed);
        allowance.fills = true;
        return allowance;
    };
    CHECK(piece_bytes(8 * mib, filling(256 * mib)) == 8 * mib);
    CHECK(piece_bytes(7 * mib, filling(256 * mib)) == 4 * mib);
    CHECK(piece_bytes(8 * mib, filling(127 * mib)) == 2 * mib);
    CHECK(piece_bytes(64 * mib, filling(gib)) == 32 * mib);
    CHECK(piece_bytes(64 * mib, filling(256 * mib)) == 8 * mib);
    CHECK(piece_bytes(4 * gib, filling(40 * gib)) == 128 * mib);
    CHECK(piece_bytes(160 * mib, filling(0)) == 4 * mib);
    Allowance limited = filling(gib);
    limited.limit = 4 * gib;
    CHECK(piece_bytes(64 * mib, limited) == page_bytes);
}

TEST_CASE("a program fills its memory until more than 1/1024 of what it asked for is freed") {
    CHECK(is_filling(0, 0));
    CHECK(is_filling(gib, gib - mib));
    CHECK_FALSE(is_filling(gib, gib - mib - 1));
    CHECK(is_filling(mib, 20 * mib)); // magazines have served the rest
}

TEST_CASE("no piece is more than 1/4096 of the limit, and all are pages where no slack is wanted") {
    CHECK(piece_bytes(4 * gib, held(0, 4 * gib, 80 * gib)) == 16 * mib);
    CHECK(piece_bytes(2 * mib, held(40 * gib, 40 * gib, 80 * gib)) == 16 * mib);
    CHECK(piece_bytes(gib, held(gib, gib, 16 * gib)) == 4 * mib);
    CHECK(piece_bytes(gib, held(gib, gib, 16 * gib - 2 * mib)) == 2 * mib);
    CHECK(piece_bytes(16 * mib, held(0, 16 * mib, 80 * gib)) == page_bytes);
    CHECK(piece_bytes(gib, held(gib, gib, gib)) == page_bytes);
    CHECK(piece_bytes(gib, held(0, gib, UINT64_MAX, 0)) == page_bytes);
}

TEST_CASE("once half of the limit is held, no piece is more than 1/8192 of it") {
    const auto near_limit = [](uint64_t piece, uint64_t claimed, uint64_t limit) {
        return piece_near_limit(piece, held(claimed, claimed, limit));
    };
    CHECK(near_limit(16 * mib, 40 * gib, 80 * gib) == 16 * mib);
    CHECK(near_limit(16 * mib, 40 * gib + 1, 80 * gib) == 8 * mib);
    CHECK(near_limit(4 * mib, 60 * gib, 80 * gib) == 4 * mib);
    CHECK(near_limit(8 * mib, 9 * gib, 16 * gib) == page_bytes);
    CHECK(near_limit(8 * mib, gib, gib) == page_bytes);
}

TEST_CASE("growth takes a whole piece while the free slack has room for it") {
    CHECK(growth_bytes(2 * mib, held(1 * gib, 2 * gib)) == 8 * mib);
    CHECK(growth_bytes(64 * mib, held(1 * gib, 2 * gib)) == 64 * mib);
    CHECK(growth_bytes(2 * mib, held(2 * gib + 50 * mib, 2 * gib)) == 2 * mib);
}

TEST_CASE("growth takes an eighth of what is pending, within the slack") {
    Allowance allowance = held(2 * gib, 2 * gib);
    allowance.pending = gib;
    CHECK(growth_bytes(2 * mib, allowance) == 128 * mib);
    allowance.claimed = 2 * gib + 200 * mib;
    CHECK(growth_bytes(2 * mib, allowance) == 56 * mib);
    allowance.slack = 0;
    CHECK(growth_bytes(2 * mib, allowance) == 2 * mib);
}

TEST_CASE(
    "a small request takes what no page can be had from, and nothing where no slack is wanted") {
    CHECK(most_of_large_zone(0.125) == page_bytes - 1);
    CHECK(most_of_large_zone(0.001) == page_bytes - 1);
    CHECK(most_of_large_zone(0) == 0);
}

TEST_CASE("a range of addresses is 4 GiB, 16 times the request, and as large as all before") {
    CHECK(address_bytes(2 * mib, 0) == 4 * gib);
    CHECK(address_bytes(gib, 4 * gib) == 16 * gib);
    CHECK(address_bytes(gib + 512, 0) == 16 * gib + page_bytes);
    CHECK(address_bytes(2 * mib, 20 * gib) == 20 * gib);
}

TEST_CASE("refused addresses are halved, down to those that the request needs") {
    CHECK(fewer_addresses(4 * gib, 3 * mib) == 2 * gib);
    CHECK(fewer_addresses(6 * mib, 1) == 2 * mib); // whole pages
    CHECK(fewer_addresses(16 * gib + page_bytes, gib + 512) == 8 * gib);
    CHECK(fewer_addresses(gib + gib / 2, gib + 512) == gib + page_bytes);
    CHECK(fewer_addresses(gib + page_bytes, gib + 512) == 0);
    CHECK(fewer_addresses(2 * mib, 1) == 0);
}

TEST_CASE("a pool that holds more than max may take what it gives back, and no more") {
    CHECK(may_take(60 * mib, 40 * mib, 0, 100 * mib));
    CHECK_FALSE(may_take(60 * mib, 40 * mib + 1, 0, 100 * mib));
    CHECK(may_take(60 * mib, 50 * mib, 10 * mib, 100 * mib));
    CHECK(may_take(120 * mib, 0, 0, 100 * mib));
    CHECK_FALSE(may_take(120 * mib, 1, 0, 100 * mib));
    CHECK(may_take(120 * mib, 10 * mib, 10 * mib, 100 * mib));
    CHECK_FALSE(may_take(120 * mib, 11 * mib, 10 * mib, 100 * mib));
    CHECK(may_take(UINT64_MAX, 0, 0, UINT64_MAX));
}

TEST_CASE("a resume joins pieces up to 256 MiB and 1/256 of the limit, and none without slack") {
    CHECK(joined_bytes(80 * gib, 0.125) == 256 * mib);
    CHECK(joined_bytes(16 * gib, 0.125) == 64 * mib);
    CHECK(joined_bytes(80 * gib, 0) == 0);
}

TEST_CASE("the driver is asked for 32 new pieces as one first") {
    CHECK_FALSE(is_worth_a_trial(31));
    CHECK(is_worth_a_trial(32));
}

TEST_CASE(
    "an event on the context stands for many frees, half of all memory, or a 96th of the device") {
    const Allowance small = held(gib, gib, 64 * gib), large = held(4 * gib, 4 * gib, 96 * gib);
    CHECK(is_worth_an_event(256, 256, small));
    CHECK_FALSE(is_worth_an_event(255, gib / 2 - 1, small));
    CHECK(is_worth_an_event(48, gib / 2, small));
    CHECK_FALSE(is_worth_an_event(47, gib / 2, small)); // the pool may grow
    const Allowance tiny = held(16 * mib, 16 * mib, 64 * gib);
    CHECK(is_worth_an_event(128, 8 * mib, tiny));
    CHECK_FALSE(is_worth_an_event(127, 127 * mib / 16, tiny));
    CHECK_FALSE(is_worth_an_event(0, 16 * mib, tiny));
    CHECK_FALSE(is_worth_an_event(64, 2 * mib, held(4 * mib, 4 * mib, 64 * gib)));
    CHECK(is_worth_an_event(1, gib, large));
    CHECK_FALSE(is_worth_an_event(255, gib - 1, large));
    const Allowance tight = held(gib, gib, 96 * gib, 0); // it must not grow
    CHECK(is_worth_an_event(1, gib / 2, tight));
    CHECK_FALSE(is_worth_an_event(255, gib / 2 - 1, tight));
    CHECK(is_worth_an_event(1, 2 * mib, {}));
    CHECK_FALSE(is_worth_an_event(255, 2 * mib - 1, {}));
}

TEST_CASE("a batch of kept blocks is 8 MiB, and from 48 to 128 blocks") {
    CHECK(frees_a_batch(0) == 128);
    CHECK(frees_a_batch(mib / 16) == 128);
    CHECK(frees_a_batch(mib / 8) == 64);
    CHECK(frees_a_batch(mib / 8 + 1) == 63);
    CHECK(frees_a_batch(mib / 4) == 48);
    CHECK(frees_a_batch(gib) == 48);
    CHECK(is_a_batch(128, 8 * mib, 96 * gib));
    CHECK_FALSE(is_a_batch(127, 127 * mib / 16, 96 * gib));
}

TEST_CASE("a batch of kept blocks is no more than what is worth an event") {
    const uint64_t limit = 96 * gib;
    CHECK(bytes_a_batch(limit) == gib);
    CHECK(kept_block_limit(limit) == gib / 4);
    CHECK(kept_bytes_limit(limit) == 3 * gib);
    CHECK(is_a_batch(48, 48 * mib, limit));
    CHECK_FALSE(is_a_batch(47, 47 * mib, limit));
    CHECK_FALSE(is_a_batch(31, gib - 33 * mib, limit));
    CHECK(is_a_batch(31, 31 * 33 * mib, limit));
    CHECK_FALSE(is_a_batch(3, gib / 4 * 3, limit));
    CHECK(is_a_batch(4, gib, limit));
    CHECK_FALSE(is_a_batch(0, 0, 0)); // no blocks are kept
}

TEST_CASE(
    "what is pending is waited for once it is an eighth of what is in use, and a 96th of all") {
    const auto waits = [](uint64_t used, uint64_t pending) {
        Allowance allowance = held(4 * gib, 4 * gib, 96 * gib);
        allowance.pending = pending;
        return is_worth_a_wait(used, allowance);
    };
    CHECK(waits(16 * gib, 2 * gib));
    CHECK_FALSE(waits(16 * gib, 2 * gib - 1));
    CHECK(waits(gib / 4, gib));
    CHECK_FALSE(waits(gib / 4, gib - 1));
    CHECK(waits(192 * mib, gib));
    CHECK_FALSE(waits(192 * mib - 1, 60 * gib)); // it uses little
}

TEST_CASE("the pool asks before it grows once two batches of 2 MiB are pending") {
    Allowance allowance = held(gib, gib, 64 * gib, 0.125);
    allowance.pending = 192 * mib - 1;
    CHECK_FALSE(is_worth_a_question(allowance));
    allowance.pending = 192 * mib;
    CHECK(is_worth_a_question(allowance));
}

TEST_CASE("a thread takes a 64th of what is pending ahead, once it is much") {
    Allowance allowance = held(gib, gib, 64 * gib, 0.125);
    allowance.pending = 192 * mib - 1;
    CHECK(bytes_ahead(allowance) == 0);
    allowance.pending = 192 * mib;
    CHECK(bytes_ahead(allowance) == 3 * mib);
}

TEST_CASE("the pool grows unasked to two batches of pending requests, on a 32nd of what there is") {
    const auto may = [](uint64_t bytes, uint64_t pending, uint64_t claimed, double slack = 0.125) {
        Allowance allowance = held(claimed, claimed, 64 * gib, slack);
        allowance.pending = pending;
        return may_grow_unasked(bytes, allowance);
    };
    CHECK(may(mib, 95 * mib, 100 * mib));
    CHECK_FALSE(may(mib, 96 * mib, 100 * mib));
    CHECK(may(mib / 16, 16 * mib - 1, 100 * mib));
    CHECK_FALSE(may(mib / 16, 16 * mib, 100 * mib));
    CHECK_FALSE(may(mib, 0, 100 * mib)); // nothing to ask about
    CHECK(may(mib, 1, 100 * mib));
    CHECK(may(mib, mib, 2 * gib - mib));
    CHECK_FALSE(may(mib, mib, 2 * gib));
    CHECK_FALSE(may(mib, mib, 100 * mib, 0));
}
