// Steps with device memory, streams, sections and trims.
#include "world.h"

namespace model {
namespace {

bool is_raw(const Block &block) {
    return block.kind == Kind::device && !block.by_handle;
}

void allocate(World &world) {
    if (world.blocks.size() >= world.settings.live) {
        return;
    }
    Block block;
    block.context = world.any_place();
    block.size = world.chance.size();
    block.by_handle = world.settings.handles && world.one_in(4);
    Stream &stream = world.any_stream(block.context);
    if (Block *const made = world.allocate(block, stream, stream.handle, world.hand_of(stream))) {
        world.use(*made, stream);
    }
}

// Any stream may use the memory at once.
void allocate_unordered(World &world) {
    if (world.blocks.size() >= world.settings.live) {
        return;
    }
    Block block;
    block.context = world.any_place();
    if (world.unannounced(block.context)) {
        return;
    }
    block.size = world.chance.size();
    Stream &stream = world.any_stream(block.context);
    if (Block *const made = world.allocate(block, stream, EMM_STREAM_UNORDERED, world.any_hand())) {
        world.use(*made, stream);
    }
}

void use(World &world) {
    if (Block *const block = world.any_usable()) {
        world.use(*block, *block->home);
    }
}

void look(World &world) {
    if (Block *const block = world.any_usable()) {
        world.look(*block);
    }
}

// Its last use is not over.
void free(World &world) {
    if (Block *const block = world.any_plain()) {
        world.come_home(*block);
        world.free(block, *block->home);
    }
}

void free_elsewhere(World &world) {
    if (Block *const block = world.any_plain()) {
        Stream &stream = world.any_stream(block->context);
        world.order(*block->home, stream);
        if (!world.is_paused(*block) && world.one_in(2)) {
            world.use(*block, stream);
        }
        world.free(block, stream);
    }
}

// The device uses the block, and emm is not told on which stream.
void free_unordered(World &world) {
    Block *const block = world.any_plain();
    if (block &&
        !(block->kind == Kind::device ? world.unannounced(block->context) : world.unannounced())) {
        world.places[block->context].freed_abroad |= block->home->context != block->context;
        world.free(block, EMM_STREAM_UNORDERED, world.any_hand());
    }
}

// Uses the block on another stream that the block's own is not ordered behind: emm is told, or the
// program waits.
void free_after_use_elsewhere(World &world) {
    Block *const block = world.any_usable(
        [](const Block &each) { return each.kind == Kind::device && each.is_plain(); });
    if (!block || world.unannounced(block->context)) {
        return;
    }
    Stream &home = *block->home, &stream = world.any_stream(block->context);
    emm_context *const context = world.pool_of(*block);
    world.order(home, stream);
    const emm_status told = world.call(world.hand_of(stream), [&] {
        return emm_record_use(context, block->ptr, block->size, stream.handle);
    });
    world.use(*block, stream);
    if (told < EMM_OK) {
        world.refused(told, EMM_E_NOT_SUPPORTED, "emm_record_use");
        world.look(*block);
    }
    world.free(block, home);
}

void query(World &world) {
    Block *const block =
        world.any_block([](const Block &each) { return each.kind == Kind::device; });
    if (!block) {
        return;
    }
    auto info = sized<emm_block_info>();
    const Place &place = world.places[block->context];
    const emm_deviceptr inside = block->ptr + world.below(block->size);
    const emm_status status = world.call(
        world.any_hand(), [&] { return emm_query(world.pool_of(*block), inside, &info); });
    if (status == EMM_E_NOT_SUPPORTED || !world.done(status, "emm_query")) {
        return;
    }
    const emm_deviceptr end = block->ptr + block->size; // bytes added by rounding may belong to it
    if (info.base != block->ptr || info.size < block->size ||
        !world.model.is_free(end, block->ptr + info.size) || info.device != place.device ||
        info.kind != EMM_KIND_DEVICE) {
        throw Wrong("emm_query tells of another allocation");
    }
}

// The call has no effect, and the memory stays as it was.
void be_refused(World &world) {
    Block *const block = world.any_block(is_raw);
    if (!block) {
        return;
    }
    const size_t hand = world.any_hand();
    emm_context *const own = world.pool_of(*block);
    const size_t place = world.any_place();
    emm_context *const other = world.places[place].pool(world.any_pool(place));
    const auto free = [&](emm_context *context, emm_deviceptr ptr, size_t size) {
        return world.call(hand, [=] { return emm_memfree(context, ptr, size, EMM_STREAM_LEGACY); });
    };
    const emm_deviceptr near = block->ptr + 1 + world.below(block->size + (1 << 20));
    const Range *const live = world.model.live_around(near);
    if (!live || live->begin != near) {
        world.refused(free(other, near, 0), EMM_E_NOT_OWNED, "a free where nothing begins");
    }
    if (other != own) {
        world.refused(free(other, block->ptr, 0), EMM_E_NOT_OWNED, "another context's free");
    }
    if (!world.model.promises().keeps_account) {
        return;
    }
    const size_t wrong = block->size + (world.one_in(2) && block->size > 1 ? size_t(-1) : 1);
    world.refused(free(own, block->ptr, wrong), EMM_E_INVALID_VALUE, "a free of another size");
}

// Refused, unless the plugin makes reuse wait for that stream.
void free_on_foreign_stream(World &world) {
    Block *const block = world.any_block(is_raw);
    Stream &stream = world.any_stream(world.any_place());
    if (!block || stream.context == block->context || stream.built_in()) {
        return;
    }
    world.order(*block->home, stream);
    emm_context *const context = world.pool_of(*block);
    const emm_status status = world.call(world.any_hand(), [=] {
        return emm_memfree(context, block->ptr, block->size, stream.handle);
    });
    if (status < EMM_OK) {
        return world.refused(status, EMM_E_INVALID_VALUE, "a free on another context's stream");
    }
    world.model.freed(block->ptr);
    world.forget(block);
}

void section(World &world) {
    const size_t number = world.any_place();
    Place &place = world.places[number];
    const size_t hand = world.any_hand();
    if (place.sections && world.one_in(2)) {
        world.done(world.call(hand, [&] { return emm_defer_cleanup_end(place.emm); }),
                   "emm_defer_cleanup_end"); // it has ended even if a driver call has failed
        place.sections--;
        world.model.section_ends(number);
    } else if (world.one_in(4) &&
               world.done(world.call(hand, [&] { return emm_defer_cleanup_begin(place.emm); }),
                          "emm_defer_cleanup_begin")) {
        place.sections++;
        world.model.section_begins(number);
    }
}

// Whether the reserved bytes are an estimate.
bool is_opaque() {
    auto info = sized<emm_plugin_info>();
    return emm_get_plugin(&info) == EMM_OK && (info.capabilities & EMM_PLUGIN_OPAQUE) != 0;
}

void trim(World &world) {
    if (world.unannounced()) {
        return;
    }
    const size_t number = world.any_place();
    const size_t pool = world.any_pool(number);
    const emm_stats before = world.stats_of(number, pool);
    const size_t keep = world.one_in(2) ? 0 : world.below(64) << 20;
    size_t released = 0;
    emm_context *const context = world.places[number].pool(pool);
    if (world.done(world.call(world.any_hand(), [&] { return emm_trim(context, keep, &released); }),
                   "emm_trim")) {
        const emm_stats after = world.stats_of(number, pool);
        const auto held = [](const emm_stats &stats) {
            return stats.reserved_bytes + stats.host_reserved_bytes;
        };
        if (!is_opaque() && held(after) + released > held(before)) {
            throw Wrong("a trim tells of more than it has returned: " + std::to_string(released) +
                        " bytes, of " + std::to_string(held(before)) + " reserved " +
                        std::to_string(held(after)) + " are left");
        }
        if (world.places[number].paused[pool] == Paused::yes && released) {
            throw Wrong("a trim of a paused pool has released " + std::to_string(released) +
                        " bytes");
        }
    }
}

void replace_stream(World &world) {
    const size_t place = world.any_place();
    Stream &stream = world.any_stream(place);
    if (!stream.built_in()) {
        Stream &heir = world.any_stream(place);
        if (&heir != &stream) {
            world.end_stream(stream, heir);
            world.make_stream(place, world.one_in(2));
        }
    }
}

// The thread's own streams end with it.
void end_thread(World &world) {
    const size_t hand = world.any_hand();
    for (const auto &graph : world.graphs) {
        if (graph->graphs.empty() && graph->execs.empty() && graph->hand == hand) {
            return; // the thread has to end its capture
        }
    }
    for (Place &place : world.places) {
        for (const auto &stream : place.streams) {
            if (stream->hand == hand) {
                world.rehome(*stream, *place.streams.front());
            }
        }
    }
    world.hands.replace(hand);
}

} // namespace

const std::vector<Action> memory_actions = {
    {"allocate", 300, nullptr, &allocate},
    {"allocate unordered", 40, &Settings::unordered, &allocate_unordered},
    {"use", 60, nullptr, &use},
    {"look", 60, nullptr, &look},
    {"free", 160, nullptr, &free},
    {"free elsewhere", 50, &Settings::abroad, &free_elsewhere},
    {"free unordered", 40, &Settings::unordered, &free_unordered},
    {"free after use elsewhere", 40, &Settings::abroad, &free_after_use_elsewhere},
    {"query", 20, nullptr, &query},
    {"be refused", 20, &Settings::wrong, &be_refused},
    {"free on a foreign stream", 6, &Settings::wrong, &free_on_foreign_stream},
    {"section", 8, &Settings::sections, &section},
    {"trim", 6, &Settings::trims, &trim},
    {"replace a stream", 8, &Settings::streams, &replace_stream},
    {"end a thread", 3, &Settings::ends, &end_thread},
};

} // namespace model
