// Steps that drop memory: resets, contexts that end, announced or not; and calls at the same time.
#include "world.h"

#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>

namespace model {
namespace {

bool captures(const Place &place) {
    return std::any_of(place.streams.begin(), place.streams.end(),
                       [](const auto &stream) { return stream->capture; });
}

// Whether the context takes no part in a capture that goes on, and holds no earlier memory of a
// capturing stream, for which no wait is possible.
bool may_rest(const World &world, size_t place) {
    const bool anywhere = world.places[place].freed_abroad;
    return !(anywhere ? std::any_of(world.places.begin(), world.places.end(), captures)
                      : captures(world.places[place])) &&
           std::none_of(world.blocks.begin(), world.blocks.end(), [=](const auto &block) {
               return block->context == place && block->home->capture;
           });
}

// Makes sure that the context's memory is not in use: portable memory may be in use in any context,
// also after its free.
void come_to_rest(World &world, size_t number) {
    for (const auto &block : world.blocks) {
        if (block->context == number && block->home->context != number) {
            world.look(*block);
            world.come_home(*block);
        }
    }
    for (const auto &place : world.places) {
        for (const auto &stream : place.streams) {
            if (!stream->capture) {
                world.synchronize(*stream);
            }
        }
    }
    world.places[number].freed_abroad = false;
}

// Drops the memory of all pools, as a reset of the CUDA context does.
void drop(World &world, size_t number) {
    world.forget_place(number);
    for (size_t pool = 0; pool <= world.places[number].named.size(); pool++) {
        world.model.reset(account_of(number, pool));
    }
}

void reset(World &world) {
    const size_t number = world.any_place();
    emm_context *const context = world.places[number].emm;
    if (!may_rest(world, number)) {
        return;
    }
    come_to_rest(world, number);
    world.carry_out(
        world.any_hand(), [&] { return emm_context_reset(context); }, "emm_context_reset");
    drop(world, number);
}

// Handles that another thread makes, uses and releases during a reset or a retirement.
struct Handles {
    std::vector<emm_memory *> made;
    uint64_t released = 0, asked = 0;
    emm_status status = EMM_OK; // of the last call

    void work(emm_context *context, size_t size) {
        for (size_t i = 0; i < 6 && status >= EMM_OK; i++) {
            emm_memory *memory = nullptr, *view = nullptr;
            status = emm_memory_alloc(context, size, EMM_STREAM_LEGACY, &memory);
            asked += status >= EMM_OK;
            if (status >= EMM_OK && i % 2 != 0) {
                emm_memory_view(memory, 0, size / 2, &view);
                status = std::min(emm_memory_release(memory), emm_memory_release(view));
                released++;
            } else if (status >= EMM_OK) {
                made.push_back(memory);
            }
        }
    }
};

// The answer that an allocation of the context's own memory may give beside a call that ends a
// pause.
emm_status may_be_paused(World &world, size_t number) {
    if (!world.places[number].is_paused(0)) {
        return EMM_OK;
    }
    world.model.lost_count_of_failures(number);
    return EMM_E_PAUSED;
}

void reset_beside_handles(World &world) {
    const size_t number = world.any_place(), hand = world.any_hand();
    emm_context *const context = world.places[number].emm;
    if (!may_rest(world, number) || world.hands.count() < 2) {
        return;
    }
    come_to_rest(world, number);
    Handles others;
    emm_status status = EMM_OK;
    const size_t size = 1 + world.below(100000);
    world.hands.run_both(
        hand, [&] { status = emm_context_reset(context); }, (hand + 1) % world.hands.count(),
        [&] { others.work(context, size); });
    world.done(status, "a reset beside handles");
    world.done(others.status, "a handle beside a reset", may_be_paused(world, number));
    drop(world, number);
    world.model.asked(number, others.asked);
    world.model.blurred(number, others.released, others.asked * size);
    for (emm_memory *const memory : others.made) {
        world.adopt(number, memory);
    }
    world.judge();
}

void retire_beside_handles(World &world, size_t number) {
    emm_context *const context = world.places[number].emm;
    const emm_status paused = may_be_paused(world, number);
    const size_t hand = world.any_hand();
    Handles others;
    emm_status status = EMM_OK;
    const size_t size = 1 + world.below(100000);
    world.hands.run_both(
        hand, [&] { status = emm_context_retire(context); }, (hand + 1) % world.hands.count(),
        [&] { others.work(context, size); });
    world.done(status, "a retirement beside handles");
    world.done(others.status, "a handle beside a retirement",
               others.status == EMM_E_PAUSED ? paused : EMM_E_RETIRED);
    for (emm_memory *const memory : others.made) {
        auto info = sized<emm_memory_info>();
        check(emm_memory_get_info(memory, &info), "emm_memory_get_info");
        if (info.state != EMM_MEMORY_INERT) {
            throw Wrong("a handle of a retired context is not inert");
        }
        world.inert.push_back({memory, nullptr});
    }
}

// Ends the context with all its memory. If emm is not told, it finds out when it is asked for a new
// context.
void end_context(World &world) {
    const size_t number = world.any_place();
    Place &place = world.places[number];
    if (!may_rest(world, number)) {
        return;
    }
    come_to_rest(world, number);
    for (const auto &block : world.blocks) {
        if (block->home->context == number) {
            world.come_home(*block);
        }
    }
    world.destroy_graphs(number);
    const bool told = world.one_in(2);
    emm_context *const context = place.emm;
    if (told) {
        if (world.settings.beside && world.hands.count() > 1 && world.one_in(2)) {
            retire_beside_handles(world, number);
        }
        world.carry_out( // the second time is a success
            world.any_hand(), [&] { return emm_context_retire(context); }, "emm_context_retire");
        emm_deviceptr ptr = 0;
        world.refused(
            world.call(world.any_hand(),
                       [&] { return emm_memalloc(context, 256, EMM_STREAM_LEGACY, &ptr); }),
            EMM_E_RETIRED, "an allocation of a retired context");
        for (const auto &stream : place.streams) {
            if (!stream->built_in()) {
                ::check(world.driver.cuStreamDestroy(stream->handle), "cuStreamDestroy");
            }
        }
    }
    say("    context %zu ends%s", number, told ? ", retired" : "");
    world.leave_context();
    ::check(world.driver.cuCtxDestroy(place.cuda), "cuCtxDestroy");
    world.forget_place(number);
    for (size_t pool = 0; pool <= place.named.size(); pool++) {
        world.model.retired(account_of(number, pool));
    }
    world.make_place(number);
}

// Frees and allocations of two threads, and a trim.
void work_beside(World &world) {
    const size_t number = world.any_place(), hand = world.any_hand();
    emm_context *const context = world.places[number].emm;
    std::vector<Block *> given;
    for (const auto &block : world.blocks) {
        if (block->context == number && block->pool == 0 && block->kind == Kind::device &&
            !block->by_handle && !block->home->capture && block->home->hand == no_hand &&
            given.size() < 6) {
            given.push_back(block.get());
        }
    }
    if (world.unannounced() || world.hands.count() < 2) {
        return;
    }
    Block made[4];
    emm_status status = EMM_OK, other_status = EMM_OK;
    const bool trims = world.one_in(2);
    Stream &stream = *world.places[number].streams.front();
    for (Block &block : made) {
        block.context = number;
        block.size = world.chance.size();
    }
    world.is_beside = true;
    world.hands.run_both(
        hand,
        [&] {
            for (Block *const block : given) {
                status = std::min(status, emm_memfree(context, block->ptr, 0, block->home->handle));
            }
            status = std::min(status, trims ? emm_trim(context, 0, nullptr) : EMM_OK);
        },
        (hand + 1) % world.hands.count(),
        [&] {
            for (Block &block : made) {
                const emm_status answer =
                    emm_memalloc(context, block.size, EMM_STREAM_LEGACY, &block.ptr);
                other_status = std::min(other_status, answer);
            }
        });
    world.is_beside = false;
    if (world.settings.tight) {
        world.model.lost_count_of_failures(number); // tried again after the other thread's trim
    }
    say("    thread %zu frees %zu allocations of context %zu%s, and others are made", hand,
        given.size(), number, trims ? ", trims" : "");
    const bool paused = world.places[number].is_paused(0);
    world.done(status, "frees beside allocations");
    world.done(other_status, "allocations beside frees", paused ? EMM_E_PAUSED : EMM_OK);
    uint64_t freed = 0;
    for (Block *const block : given) {
        freed += block->size;
        world.model.freed(block->ptr);
        world.forget(block);
    }
    world.model.blurred(number, 0, freed);
    for (Block &block : made) {
        if (block.ptr) {
            world.model.allocated(number, Kind::device, block.ptr, block.size);
            world.blocks.push_back(std::make_unique<Block>(block));
            world.places[number].paused[0] = Paused::no; // if that was uncertain
            world.use(*world.blocks.back(), stream);
        } else {
            world.model.failed(number, true);
        }
    }
}

// The first is made by the first call, and found by the next ones. The second has a number, and no
// later call finds it.
void name_pool(World &world) {
    const size_t number = world.any_place(), pool = world.below(world.places[number].named.size());
    Place &place = world.places[number];
    const bool is_numbered = pool == 1;
    const char *const name = is_numbered ? "pool#" : "pool-0";
    emm_context *const by = place.pool(world.any_pool(number));
    emm_context *const before = place.named[pool];
    emm_context *found = nullptr;
    const char *const all = world.waits_when_paused(pool + 1) ? "when_paused=wait" : "";
    const char *const options = !before || world.one_in(2) ? all : nullptr;
    const auto ask = [&](const char *of, const char *with) {
        return world.call(world.any_hand(),
                          [&] { return emm_context_named(by, of, with, &found); });
    };
    if (is_numbered && before) {
        return world.refused(ask("pool#1", nullptr), EMM_E_INVALID_VALUE, "a pool's number");
    }
    if (!world.done(ask(name, options), "emm_context_named")) {
        if (found) {
            throw Wrong("a pool that was not made was handed out");
        }
        return;
    }
    if (before && found != before) {
        throw Wrong("a name leads to two pools");
    }
    place.named[pool] = found;
    if (world.settings.wrong) {
        world.refused(ask(name, "no_such_option=1"), EMM_E_PLUGIN_SPEC, "an unknown option");
        world.refused(ask("a/b", nullptr), EMM_E_INVALID_VALUE, "a pool's name");
    }
}

// Sets the maximum from the least to the spec's; a maximum below the held memory may shrink, and
// not grow.
void change_max(World &world) {
    if (world.unannounced()) {
        return;
    }
    const size_t number = world.any_place(), pool = world.any_pool(number);
    const size_t mib = 1 + world.below(world.settings.most);
    const std::string text = std::to_string(mib) + "MiB";
    const emm_status status = world.call(world.any_hand(), [&] {
        return emm_context_set_option(world.places[number].pool(pool), "max", text.c_str());
    });
    if (!world.model.promises().changes_max) {
        return world.refused(status, EMM_E_NOT_SUPPORTED, "an option that is fixed");
    }
    if (mib < 2) {
        return world.refused(status, EMM_E_PLUGIN_SPEC, "a max of 1MiB");
    }
    if (world.done(status, "emm_context_set_option")) {
        say("    max of pool %zu of context %zu is %s", pool, number, text.c_str());
        const emm_stats stats = world.stats_of(number, pool);
        const uint64_t held = stats.reserved_bytes + stats.paused_bytes - stats.spilled_bytes;
        world.model.bounded(account_of(number, pool), std::max<uint64_t>(mib << 20, held));
    }
}

// Each peak is then the present value.
void reset_peaks(World &world) {
    const size_t number = world.any_place(), pool = world.any_pool(number);
    const emm_stats before = world.stats_of(number, pool);
    const emm_status status = world.call(
        world.any_hand(), [&] { return emm_context_reset_peaks(world.places[number].pool(pool)); });
    if (!world.model.promises().resets_peaks) {
        return world.refused(status, EMM_E_NOT_SUPPORTED, "peaks that go on");
    }
    if (world.done(status, "emm_context_reset_peaks")) {
        say("    of pool %zu of context %zu", pool, number);
        world.model.peaks_reset(account_of(number, pool));
        const emm_stats after = world.stats_of(number, pool);
        const auto held = [](const emm_stats &stats) {
            return stats.reserved_bytes + stats.paused_bytes;
        };
        if (after.peak_live_bytes != after.live_bytes ||
            after.peak_reserved_bytes > std::max(held(before), held(after))) {
            throw Wrong("after a reset of the peaks: live " + std::to_string(after.live_bytes) +
                        ", its peak " + std::to_string(after.peak_live_bytes) + ", reserved " +
                        std::to_string(held(after)) + ", its peak " +
                        std::to_string(after.peak_reserved_bytes));
        }
    }
}

// Ends one pool alone: its siblings' memory stays.
void end_pool(World &world) {
    const size_t number = world.any_place(), pool = world.any_pool(number);
    if (pool == 0 || !may_rest(world, number)) {
        return;
    }
    Place &place = world.places[number];
    emm_context *const context = place.pool(pool);
    const bool ends = world.one_in(2);
    come_to_rest(world, number);
    if (ends) {
        world.destroy_graphs(number);
    }
    world.carry_out(
        world.any_hand(),
        [&] { return ends ? emm_context_retire(context) : emm_context_reset(context); },
        ends ? "emm_context_retire" : "emm_context_reset");
    say("    pool %zu of context %zu %s", pool, number, ends ? "ends" : "is reset");
    world.forget_pool(number, pool);
    if (!ends) {
        return world.model.reset(account_of(number, pool));
    }
    emm_deviceptr ptr = 0;
    world.refused(world.call(world.any_hand(),
                             [&] { return emm_memalloc(context, 256, EMM_STREAM_LEGACY, &ptr); }),
                  EMM_E_RETIRED, "an allocation of a retired pool");
    place.named[pool - 1] = nullptr;
    world.model.retired(account_of(number, pool));
}

// A child has no driver: all its calls are refused, and it may end.
void fork_child(World &world) {
    emm_context *const context = world.places[0].emm;
    Block *const block = world.any_block();
    const bool good = world.hands.run(world.any_hand(), [&] {
        const pid_t child = fork();
        if (child == 0) {
            emm_deviceptr ptr = 0;
            const bool refused =
                emm_memalloc(context, 256, EMM_STREAM_LEGACY, &ptr) == EMM_E_FORKED &&
                emm_trim(context, 0, nullptr) == EMM_E_FORKED &&
                (!block || !block->by_handle ||
                 emm_memory_release(block->references[0]) == EMM_E_FORKED) &&
                emm_version();
            _exit(refused ? 0 : 1);
        }
        int status = -1;
        return waitpid(child, &status, 0) == child && status == 0;
    });
    if (!good) {
        throw Wrong("a forked child was served, or did not end");
    }
}

} // namespace

// Its memory has gone, and so have handles lost theirs.
void World::forget_place(size_t place) {
    for (size_t pool = 0; pool <= places[place].named.size(); pool++) {
        forget_pool(place, pool);
    }
}

void World::forget_pool(size_t place, size_t pool) {
    places[place].paused[pool] = Paused::no;
    for (size_t i = blocks.size(); i-- > 0;) {
        if (blocks[i]->context == place && blocks[i]->pool == pool) {
            leave_inert(blocks[i].get());
        }
    }
    for (const auto &graph : graphs) {
        graph->launchable &= graph->context != place;
    }
}

// Takes over a handle of device memory that a thread has made during a reset: before or after it.
void World::adopt(size_t place, emm_memory *memory) {
    auto info = sized<emm_memory_info>();
    done(emm_memory_get_info(memory, &info), "emm_memory_get_info");
    if (info.state != EMM_MEMORY_LIVE) {
        inert.push_back({memory, nullptr});
        return;
    }
    Block block;
    block.context = place;
    block.size = info.size;
    block.ptr = info.ptr;
    block.by_handle = true;
    block.references = {memory};
    block.free_stream = info.stream;
    model.asked(place, uint64_t(-1)); // it counts below
    model.allocated(place, Kind::device, block.ptr, block.size);
    blocks.push_back(std::make_unique<Block>(block));
    use(*blocks.back(), *places[place].streams.front());
}

const std::vector<Action> life_actions = {
    {"reset", 2, &Settings::resets, &reset},
    {"reset beside handles", 2, &Settings::resets, &reset_beside_handles},
    {"end a context", 2, &Settings::lives, &end_context},
    {"name a pool", 8, &Settings::pools, &name_pool},
    {"end a pool", 2, &Settings::pools, &end_pool},
    {"change max", 4, &Settings::most, &change_max},
    {"reset peaks", 4, &Settings::peaks, &reset_peaks},
    {"work beside", 10, &Settings::beside, &work_beside},
    {"fork", 1, &Settings::forks, &fork_child},
};

} // namespace model
