// Steps with pinned, registered and managed memory, and with handles.
#include "world.h"

#include <cstring>

namespace model {
namespace {

constexpr uint32_t host_flags[] = {0, EMM_HOST_MAPPED, EMM_HOST_PORTABLE,
                                   EMM_HOST_PORTABLE | EMM_HOST_MAPPED};

// The CPU may write at once: no pending work may write there, too.
void write_by_cpu(World &world, Block &block) {
    block.pattern = world.next_pattern();
    const Ends ends(block.ptr, block.size);
    for (const CUdeviceptr at : {ends.head, ends.tail}) {
        for (unsigned i = 0; at && i < ends.words; i++) {
            std::memcpy(reinterpret_cast<char *>(at) + i * sizeof block.pattern, &block.pattern,
                        sizeof block.pattern);
        }
    }
}

void allocate_kind(World &world, Kind kind, uint32_t flags) {
    if (world.blocks.size() >= world.settings.live ||
        (kind == Kind::pinned && world.unannounced())) {
        return;
    }
    Block block;
    block.context = world.any_place();
    block.kind = kind;
    block.flags = flags;
    block.size = world.chance.size();
    block.by_handle = world.settings.handles && world.one_in(3);
    if (kind == Kind::registered) {
        block.owned = std::make_shared<Owned>(block.size);
        block.host = block.owned->bytes;
        std::memset(block.host, 0, block.size);
    }
    Stream &stream = world.any_stream(block.context);
    if (Block *const made =
            world.allocate(std::move(block), stream, EMM_STREAM_UNORDERED, world.any_hand())) {
        if (flags & EMM_HOST_READ_ONLY && kind == Kind::registered) {
            return;
        }
        world.one_in(2) ? write_by_cpu(world, *made) : world.use(*made, stream);
    }
}

void allocate_pinned(World &world) {
    const uint32_t wc = world.one_in(4) ? EMM_HOST_WRITE_COMBINED : 0;
    allocate_kind(world, Kind::pinned, host_flags[world.below(4)] | wc);
}

void pin(World &world) {
    const uint32_t read_only = world.one_in(4) ? EMM_HOST_READ_ONLY : 0;
    allocate_kind(world, Kind::registered, host_flags[world.below(4)] | read_only);
}

void allocate_managed(World &world) {
    allocate_kind(world, Kind::managed, EMM_ATTACH_GLOBAL);
}

// Portable memory is every context's.
void use_in_another_context(World &world) {
    Block *const block = world.any_block([](const Block &each) {
        return each.kind == Kind::pinned && (each.flags & EMM_HOST_PORTABLE) != 0;
    });
    if (block) {
        Stream &stream = world.any_stream(world.any_place());
        world.order(*block->home, stream);
        world.use(*block, stream);
    }
}

void be_refused_host_memory(World &world) {
    Block *const block = world.any_block(
        [](const Block &each) { return each.kind != Kind::device && !each.by_handle; });
    if (!block) {
        return;
    }
    emm_context *const context = world.pool_of(*block);
    const size_t wrong = block->size + 1;
    emm_deviceptr ptr = 0;
    const auto refused = [&](emm_status expected, const char *what, auto make) {
        world.refused(world.call(world.any_hand(), make), expected, what);
    };
    if (block->kind == Kind::pinned) {
        refused(EMM_E_INVALID_VALUE, "pinned memory of another size", [&] {
            return emm_memhostfree(context, block->host, wrong, block->flags, EMM_STREAM_LEGACY);
        });
        refused(EMM_E_NOT_OWNED, "pinned memory of other flags", [&] {
            return emm_memhostfree(context, block->host, 0, block->flags ^ EMM_HOST_PORTABLE,
                                   EMM_STREAM_LEGACY);
        });
        refused(EMM_E_NOT_OWNED, "pinned memory as device memory",
                [&] { return emm_memfree(context, block->ptr, 0, EMM_STREAM_LEGACY); });
    } else if (block->kind == Kind::registered) {
        refused(EMM_E_BUSY, "a second pin",
                [&] { return emm_mempin(context, block->host, block->size, block->flags, &ptr); });
        refused(EMM_E_INVALID_VALUE, "an unpin of another size",
                [&] { return emm_memunpin(context, block->host, wrong); });
    } else {
        refused(EMM_E_INVALID_VALUE, "managed memory of another size",
                [&] { return emm_memfreemanaged(context, block->ptr, wrong, EMM_STREAM_LEGACY); });
        refused(EMM_E_NOT_OWNED, "managed memory as device memory",
                [&] { return emm_memfree(context, block->ptr, 0, EMM_STREAM_LEGACY); });
    }
}

// --- handles -------------------------------------------------------------------------------------

Block *any_handle(World &world) {
    return world.any_block([](const Block &each) { return each.by_handle; });
}

void refer(World &world) {
    Block *const block = any_handle(world);
    if (!block || block->references.size() > 4) {
        return;
    }
    emm_memory *reference = block->references[world.below(block->references.size())];
    if (world.one_in(2)) {
        if (world.done(world.call(world.any_hand(), [&] { return emm_memory_retain(reference); }),
                       "emm_memory_retain")) {
            block->references.push_back(reference);
        }
        return;
    }
    emm_memory *const whole = block->references[0];
    const size_t start = world.below(block->size), stop = start + world.below(block->size - start);
    auto info = sized<emm_memory_info>();
    if (!world.done(world.call(world.any_hand(),
                               [&] { return emm_memory_view(whole, start, stop, &reference); }),
                    "emm_memory_view")) {
        return;
    }
    block->references.push_back(reference);
    if (world.done(
            world.call(world.any_hand(), [&] { return emm_memory_get_info(reference, &info); }),
            "emm_memory_get_info of a view") &&
        (info.size != stop - start || info.parent != whole || info.state != EMM_MEMORY_LIVE)) {
        throw Wrong("a view tells of other memory");
    }
}

// Gives up a reference, but not the last: the memory stays.
void give_up_reference(World &world) {
    Block *const block = any_handle(world);
    if (block && block->references.size() > 1) {
        emm_memory *const reference = block->references.back();
        world.carry_out(
            world.any_hand(), [&] { return emm_memory_release(reference); },
            "the release of a further reference");
        block->references.pop_back();
    }
}

// Frees the handle. Its references stay, and are inert; a second free is refused.
void free_handle(World &world) {
    Block *const block = any_handle(world);
    if (!block) {
        return;
    }
    world.come_home(*block);
    if (block->kind == Kind::registered) {
        world.look(*block);
    }
    Stream &home = *block->home;
    emm_memory *const whole = block->references[0];
    const size_t hand = world.hand_of(home);
    world.carry_out(
        hand, [&] { return emm_memory_set_stream(whole, home.handle); }, "emm_memory_set_stream");
    block->free_stream = home.handle;
    if (world.done(world.call(hand, [&] { return emm_memory_free(whole); }), "emm_memory_free")) {
        world.refused(world.call(world.any_hand(), [&] { return emm_memory_free(whole); }),
                      EMM_E_ALREADY_FREED, "a second emm_memory_free");
        world.model.freed(block->ptr);
        world.leave_inert(block);
    } else {
        world.give_up_opened(block);
    }
}

void release_inert(World &world) {
    if (!world.inert.empty()) {
        world.release_inert(world.below(world.inert.size()));
    }
}

} // namespace

const std::vector<Action> host_actions = {
    {"allocate pinned memory", 50, &Settings::host, &allocate_pinned},
    {"pin", 20, &Settings::host, &pin},
    {"allocate managed memory", 20, &Settings::host, &allocate_managed},
    {"use in another context", 15, &Settings::host, &use_in_another_context},
    {"be refused host memory", 10, &Settings::wrong, &be_refused_host_memory},
};

const std::vector<Action> handle_actions = {
    {"refer", 40, &Settings::handles, &refer},
    {"give up a reference", 40, &Settings::handles, &give_up_reference},
    {"free a handle", 10, &Settings::handles, &free_handle},
    {"release an inert handle", 10, &Settings::handles, &release_inert},
};

} // namespace model
