// Steps that pause and resume device memory. Other steps go on meanwhile, without using that
// memory.
#include "world.h"

#include <algorithm>

namespace model {
namespace {

std::vector<size_t> pools_meant(const Place &place, size_t pool) {
    std::vector<size_t> pools = {pool};
    for (size_t other = 1; pool == 0 && other <= place.named.size(); other++) {
        if (place.pool(other)) {
            pools.push_back(other);
        }
    }
    return pools;
}

struct Held {
    uint64_t reserved = 0, paused = 0, most_paused = 0; // of one pool
};

Held held_by(World &world, size_t place, const std::vector<size_t> &pools) {
    Held held;
    for (const size_t pool : pools) {
        const emm_stats stats = world.stats_of(place, pool);
        held.reserved += stats.reserved_bytes;
        held.paused += stats.paused_bytes;
        held.most_paused = std::max(held.most_paused, stats.paused_bytes);
    }
    return held;
}

// The statuses with which a pause may be refused. A pool that is paused already refuses nothing.
std::vector<emm_status> refusals(const World &world, size_t number,
                                 const std::vector<size_t> &pools) {
    const Place &place = world.places[number];
    if (!world.model.promises().pauses) {
        return {EMM_E_NOT_SUPPORTED};
    }
    std::vector<emm_status> found;
    const auto serves = [&](size_t pool) { return !place.is_paused(pool); };
    if (std::any_of(pools.begin(), pools.end(), serves) &&
        std::any_of(place.streams.begin(), place.streams.end(),
                    [](const auto &stream) { return stream->announced; })) {
        found.push_back(EMM_E_CAPTURING);
    }
    if (place.sections && pools[0] == 0 && serves(0)) {
        found.push_back(EMM_E_BUSY);
    }
    return found;
}

bool is_of(const Block &block, size_t place, size_t pool) {
    return block.kind == Kind::device && block.context == place && block.pool == pool;
}

void lose_content(World &world, size_t place, size_t pool) {
    for (const auto &block : world.blocks) {
        if (is_of(*block, place, pool)) {
            block->pattern = 0;
        }
    }
}

// Meanwhile another thread requests memory and frees it, unused.
emm_status call_beside_requests(World &world, size_t place, size_t pool,
                                const std::function<emm_status()> &make) {
    constexpr uint64_t requests = 4;
    const size_t hand = world.any_hand(), size = world.chance.size();
    emm_context *const context = world.places[place].pool(pool);
    emm_status status = EMM_OK, asked = EMM_OK, freed = EMM_OK;
    uint64_t count = 0;
    world.is_beside = true;
    world.hands.run_both(
        hand, [&] { status = make(); }, (hand + 1) % world.hands.count(),
        [&] {
            for (uint64_t i = 0; i < requests; i++) {
                emm_deviceptr ptr = 0;
                const emm_status answer = emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr);
                asked = std::min(asked, answer);
                if (answer >= EMM_OK) {
                    count++;
                    freed = std::min(freed, emm_memfree(context, ptr, 0, EMM_STREAM_LEGACY));
                }
            }
        });
    world.is_beside = false;
    say("    beside %llu requests", static_cast<unsigned long long>(count));
    const size_t account = account_of(place, pool);
    world.done(asked, "an allocation beside a pause or a resume", EMM_E_PAUSED);
    world.done(freed, "a free beside a pause or a resume");
    world.model.lost_count_of_failures(account);
    world.model.asked(account, count);
    world.model.blurred(account, count, size);
    return status;
}

bool may_be_beside(World &world, size_t pool) {
    return world.settings.beside && world.hands.count() > 1 && !world.waits_when_paused(pool) &&
           world.one_in(4);
}

void pause(World &world) {
    const size_t number = world.any_place(), pool = world.any_pool(number);
    Place &place = world.places[number];
    const std::vector<size_t> pools = pools_meant(place, pool);
    if (world.unannounced() || std::any_of(pools.begin(), pools.end(), [&](size_t each) {
            return place.paused[each] == Paused::perhaps;
        })) {
        return;
    }
    const bool keeps = world.one_in(2);
    const uint32_t flags =
        (keeps ? EMM_PAUSE_KEEP : EMM_PAUSE_DISCARD) | (world.one_in(4) ? EMM_PAUSE_UNSHARED : 0);
    const std::vector<emm_status> may_be = refusals(world, number, pools);
    const Held before = held_by(world, number, pools);
    size_t released = 0;
    const auto ask = [&] { return emm_context_pause(place.pool(pool), flags, &released); };
    const bool beside = may_be_beside(world, pool);
    const emm_status status =
        beside ? call_beside_requests(world, number, pool, ask) : world.call(world.any_hand(), ask);
    say("    pool %zu of context %zu, flags %u: %zu bytes", pool, number, flags, released);
    for (const size_t each :
         pools) { // pools paused before another one failed have lost their content
        if (!keeps && !place.is_paused(each) && (status >= EMM_OK || pools.size() > 1)) {
            lose_content(world, number, each);
        }
    }
    // By then there may be no memory to resume a pool that was paused before another pool failed.
    for (const size_t each : pools) {
        const bool stays = status < EMM_OK && world.stats_of(number, each).paused_bytes > 0;
        if (stays && !place.is_paused(each) && (beside || world.driver.counters().faults > 0)) {
            place.paused[each] = Paused::yes;
        }
    }
    // A pool of growth=auto has segments if the driver failed to tell the device's abilities.
    const bool faulty = world.driver.counters().faults > 0;
    const emm_status segments = faulty ? EMM_E_NOT_SUPPORTED : EMM_OK;
    if (!may_be.empty()) {
        const bool known = std::find(may_be.begin(), may_be.end(), status) != may_be.end();
        const bool has_segments = faulty && status == segments;
        return world.refused(status, known || has_segments ? status : may_be[0], "a pause");
    }
    if (!world.done(status, "emm_context_pause", segments)) {
        return;
    }
    const Held after = held_by(world, number, pools);
    if (!beside && world.model.promises().keeps_account &&
        after.reserved + released != before.reserved) {
        throw Wrong("a pause tells of " + std::to_string(released) + " bytes, of " +
                    std::to_string(before.reserved) + " reserved " +
                    std::to_string(after.reserved) + " are left");
    }
    for (const size_t each : pools) {
        place.paused[each] = Paused::yes;
    }
}

void resume(World &world) {
    if (!world.unannounced()) {
        const size_t number = world.any_place();
        world.resume(number, world.any_pool(number), world.below(2) * EMM_RESUME_KEEP_COPY);
    }
}

// By the pool's option.
void wait_for_resume(World &world) {
    const size_t number = world.any_place(), pool = world.places[number].named.size();
    Place &place = world.places[number];
    emm_context *const context = place.pool(pool);
    if (!world.waits_when_paused(pool) || place.paused[pool] != Paused::yes ||
        world.settings.tight || world.unannounced() || world.hands.count() < 2) {
        return;
    }
    const size_t hand = world.any_hand();
    Block block;
    block.context = number;
    block.pool = pool;
    block.size = world.chance.size();
    emm_status status = EMM_OK, resumed = EMM_OK;
    world.is_beside = true;
    world.hands.run_both(
        hand,
        [&] {
            resumed = emm_context_resume(context, 0);
            if (resumed < EMM_OK) {
                emm_context_reset(context); // otherwise the other thread waits for ever
            }
        },
        (hand + 1) % world.hands.count(),
        [&] { status = emm_memalloc(context, block.size, EMM_STREAM_LEGACY, &block.ptr); });
    world.is_beside = false;
    check(resumed, "emm_context_resume beside an allocation that waits");
    check(status, "an allocation that waits for a resume");
    place.paused[pool] = Paused::no;
    world.model.allocated(account_of(number, pool), Kind::device, block.ptr, block.size);
    world.blocks.push_back(std::make_unique<Block>(block));
    world.use(*world.blocks.back(), *place.streams.front());
}

void be_refused_a_pause(World &world) {
    const size_t number = world.any_place(), pool = world.any_pool(number);
    emm_context *const context = world.places[number].pool(pool);
    constexpr uint32_t wrong[] = {0, EMM_PAUSE_UNSHARED, EMM_PAUSE_KEEP | EMM_PAUSE_DISCARD, 8};
    const uint32_t flags = wrong[world.below(4)];
    world.refused(
        world.call(world.any_hand(), [&] { return emm_context_pause(context, flags, nullptr); }),
        EMM_E_INVALID_VALUE, "wrong flags of a pause");
    const bool exports = world.model.promises().keeps_account && !world.waits_when_paused(pool);
    for (const auto &block : world.blocks) {
        if (exports && is_of(*block, number, pool) &&
            world.places[number].paused[pool] == Paused::yes) {
            emm_ipc_handle handle = {};
            return world.refused(world.call(world.any_hand(),
                                            [&] {
                                                return emm_get_ipc_handle(context, block->ptr,
                                                                          block->size, &handle);
                                            }),
                                 EMM_E_PAUSED, "an export of a paused pool");
        }
    }
}

} // namespace

// If there is no room, the resume can be tried again, also pool by pool.
void World::resume(size_t number, size_t pool, uint32_t flags) {
    Place &place = places[number];
    const std::vector<size_t> pools = pools_meant(place, pool);
    const Held before = held_by(*this, number, pools);
    const auto ask = [&] { return emm_context_resume(place.pool(pool), flags); };
    const bool beside = !is_calm_ && may_be_beside(*this, pool);
    const emm_status status =
        beside ? call_beside_requests(*this, number, pool, ask) : call(any_hand(), ask);
    const Held after = held_by(*this, number, pools);
    say("    pool %zu of context %zu, %llu bytes of %llu", pool, number,
        static_cast<unsigned long long>(after.reserved - before.reserved),
        static_cast<unsigned long long>(before.paused));
    if (!done(status, "emm_context_resume")) {
        if (status == EMM_E_OUT_OF_MEMORY && !has_faulted_) {
            const Account account = device_account(place.device);
            account.judge_refusal(account.bound ? after.most_paused : 0, 1);
        }
        for (const size_t each : pools) {
            const bool certain = pools.size() == 1 || stats_of(number, each).paused_bytes;
            place.paused[each] = !place.is_paused(each) ? Paused::no
                                 : certain              ? Paused::yes
                                                        : Paused::perhaps;
        }
        return;
    }
    if (!beside && after.reserved > before.reserved + before.paused) {
        throw Wrong("a resume has taken more than was paused");
    }
    for (const size_t each : pools) {
        place.paused[each] = Paused::no;
        for (const auto &block : blocks) {
            if (is_of(*block, number, each) && !block->home->capture && one_in(2)) {
                look(*block);
            }
        }
    }
}

void World::resume_all() {
    for (size_t place = 0; place < places.size(); place++) {
        resume(place, 0, 0);
    }
}

const std::vector<Action> pause_actions = {
    {"pause", 24, &Settings::pauses, &pause},
    {"resume", 24, &Settings::pauses, &resume},
    {"wait for a resume", 8, &Settings::pauses, &wait_for_resume},
    {"be refused a pause", 4, &Settings::wrong, &be_refused_a_pause},
};

} // namespace model
