// Memory in the steps: made, used, checked and freed.
#include "world.h"

#include <algorithm>

namespace model {
Block *World::any_block(bool (*is)(const Block &)) {
    std::vector<Block *> found;
    for (const auto &block : blocks) {
        if (!block->home->capture && is(*block)) {
            found.push_back(block.get());
        }
    }
    return any_of(found);
}

Block *World::any_usable(bool (*is)(const Block &)) {
    std::vector<Block *> found;
    for (const auto &block : blocks) {
        if (!block->home->capture && !is_paused(*block) && is(*block)) {
            found.push_back(block.get());
        }
    }
    return any_of(found);
}

// Runs on the thread that makes the request.
emm_status World::request(Block &block, emm_stream stream) {
    emm_context *const context = pool_of(block);
    emm_memory **const handle = &block.references[0];
    switch (block.kind) {
    case Kind::device:
        return block.by_handle ? emm_memory_alloc(context, block.size, stream, handle)
                               : emm_memalloc(context, block.size, stream, &block.ptr);
    case Kind::pinned:
        return block.by_handle
                   ? emm_memory_hostalloc(context, block.size, block.flags, handle)
                   : emm_memhostalloc(context, block.size, block.flags, &block.host, &block.ptr);
    case Kind::managed:
        return block.by_handle ? emm_memory_managed(context, block.size, block.flags, handle)
                               : emm_memallocmanaged(context, block.size, block.flags, &block.ptr);
    case Kind::registered:
        return block.by_handle
                   ? emm_memory_pin(
                         context, block.host, block.size, block.flags, block.owned.get(),
                         [](void *owner) { ++static_cast<Owned *>(owner)->finalized; }, handle)
                   : emm_mempin(context, block.host, block.size, block.flags, &block.ptr);
    case Kind::opened:
        break;
    }
    return EMM_E_NOT_SUPPORTED;
}

Block *World::allocate(Block block, Stream &home, emm_stream stream, size_t hand) {
    constexpr emm_deviceptr untouched = 0x5a5a5a5a;
    block.pool = any_pool(block.context);
    if (block.kind == Kind::device && waits_when_paused(block.pool) &&
        places[block.context].is_paused(block.pool)) {
        block.pool = 0;
    }
    const size_t account = account_of(block.context, block.pool);
    block.home = &home;
    block.free_stream = block.kind == Kind::device ? stream : EMM_STREAM_UNORDERED;
    block.free_hand = hand;
    block.ptr = untouched;
    block.references = {reinterpret_cast<emm_memory *>(untouched)};
    const emm_status status = call(hand, [&] { return request(block, stream); });
    if (has_faulted_ || status == EMM_E_CAPTURING || settings.tight) {
        model.lost_count_of_failures(account); // asked again, or refused before
    }
    const Graph *const capture = stream == home.handle ? home.capture : nullptr;
    // Memory that another context's reset could not unpin stays pinned.
    const bool may_be_pinned = block.kind == Kind::registered && driver.counters().faults > 0;
    const emm_status paused = expect_pause(block, status);
    if (!done(status, "an allocation",
              paused    ? paused
              : capture ? EMM_E_CAPTURING
                        : (may_be_pinned ? EMM_E_BUSY : EMM_OK))) {
        if (block.kind == Kind::device) {
            model.failed(account, true);
            if (status == EMM_E_OUT_OF_MEMORY && !has_faulted_) {
                device_account(places[block.context].device).judge_refusal(block.size, driver_step);
            }
        }
        if (block.ptr != untouched || block.references[0] != reinterpret_cast<void *>(untouched)) {
            throw Wrong("an allocation failed, and has written to its output");
        }
        return nullptr;
    }
    const bool host = block.kind == Kind::pinned || block.kind == Kind::registered;
    if (block.by_handle) {
        judge_handle(block);
        auto info = sized<emm_memory_info>();
        check(emm_memory_get_info(block.references[0], &info), "emm_memory_get_info");
        block.ptr = info.ptr;
        block.host = info.host;
    } else {
        block.references.clear();
    }
    if (host && ((block.flags & EMM_HOST_MAPPED) != 0) != (block.ptr != 0)) {
        throw Wrong("host memory has a device address only if it is mapped");
    }
    block.ptr = host ? reinterpret_cast<uintptr_t>(block.host) : block.ptr;
    say("    thread %zu, stream %p of context %zu, pool %zu: %zu bytes of %s memory at 0x%llx%s",
        hand, static_cast<void *>(stream), block.context, block.pool, block.size,
        name_of(block.kind), block.ptr, block.by_handle ? ", a handle" : "");
    model.allocated(account, block.kind, block.ptr, block.size, capture ? capture->number : 0);
    blocks.push_back(std::make_unique<Block>(std::move(block)));
    return blocks.back().get();
}

// The answer that a paused pool may give: 0 if the pool is not paused.
emm_status World::expect_pause(const Block &block, emm_status status) {
    if (!is_paused(block)) {
        return EMM_OK;
    }
    Paused &paused = places[block.context].paused[block.pool];
    if (paused == Paused::yes) {
        refused(status, EMM_E_PAUSED, "an allocation of a paused pool");
    } else if (status >= EMM_OK || status == EMM_E_PAUSED) {
        paused = status == EMM_E_PAUSED ? Paused::yes : Paused::no;
    }
    return EMM_E_PAUSED;
}

void World::judge_handle(const Block &block) {
    auto info = sized<emm_memory_info>();
    check(emm_memory_get_info(block.references[0], &info), "emm_memory_get_info");
    if (info.state != EMM_MEMORY_LIVE || info.size != block.size || info.flags != block.flags ||
        info.context != pool_of(block) || info.owner != block.owned.get() ||
        (info.stream != block.free_stream)) {
        throw Wrong("a handle tells of other memory");
    }
}

// Runs on the thread that frees.
emm_status World::give_back(const Block &block, size_t size, emm_stream stream) {
    emm_context *const context = pool_of(block);
    switch (block.kind) {
    case Kind::device:
        return emm_memfree(context, block.ptr, size, stream);
    case Kind::pinned:
        return emm_memhostfree(context, block.host, size, block.flags, stream);
    case Kind::managed:
        return emm_memfreemanaged(context, block.ptr, size, stream);
    case Kind::registered:
        return emm_memunpin(context, block.host, size);
    case Kind::opened:
        break;
    }
    return EMM_E_NOT_SUPPORTED;
}

// All uses are ordered before later work on `stream`. Registered memory is the program's again at
// once, and opened memory the exporter's: it may be opened again as the same memory, as long as
// another part of the export is open. So both are waited for first.
bool World::free(Block *block, emm_stream stream, size_t hand, const Graph *capture) {
    say("    thread %zu, stream %p: frees 0x%llx, %zu bytes of context %zu", hand,
        static_cast<void *>(stream), block->ptr, block->size, block->context);
    if (block->kind == Kind::registered || block->kind == Kind::opened) {
        look(*block);
    }
    const size_t size = one_in(2) ? block->size : 0;
    // A release that fails leaves no handle.
    const bool in_two_steps = capture || settings.faults || one_in(2);
    const emm_status status = call(hand, [&] {
        if (!block->by_handle) {
            return give_back(*block, size, stream);
        }
        emm_memory *const memory = block->references[0];
        emm_status answer = emm_memory_set_stream(memory, stream);
        answer = answer >= EMM_OK && in_two_steps ? emm_memory_free(memory) : answer;
        return answer >= EMM_OK ? emm_memory_release(memory) : answer;
    });
    block->free_stream = stream;
    if (!done(status, "a free", capture ? EMM_E_CAPTURING : EMM_OK)) {
        give_up_opened(block);
        return false;
    }
    if (block->by_handle && block->owned && block->owned->finalized != 1) {
        throw Wrong("expected one call of the finalizer, found " +
                    std::to_string(block->owned->finalized));
    }
    capture ? model.freed_in_capture(block->ptr, capture->number) : model.freed(block->ptr);
    forget(block);
    return true;
}

// Another process's memory is given up even if the driver fails to unmap it.
void World::give_up_opened(Block *block) {
    if (block->kind == Kind::opened) {
        model.freed(block->ptr);
        leave_inert(block);
    }
}

void World::leave_inert(Block *block) {
    for (emm_memory *const reference : block->references) {
        inert.push_back({reference, block->owned});
    }
    forget(block);
}

// The owner is finalized with the last of them at the latest.
void World::release_inert(size_t number) {
    const Inert reference = taken_from(inert, number);
    carry_out(
        any_hand(), [&] { return emm_memory_release(reference.memory); },
        "the release of an inert handle");
    if (reference.owned && reference.owned.use_count() == 1 && reference.owned->finalized != 1) {
        throw Wrong("expected one call of the finalizer, found " +
                    std::to_string(reference.owned->finalized));
    }
}

// Runs on the thread that has run out of memory, inside its call.
size_t World::give_to(const emm_context *context) {
    if (is_beside) {
        return 0; // another thread frees blocks
    }
    Block *const block = any_block([](const Block &each) {
        return each.kind == Kind::device && !each.by_handle && each.is_plain();
    });
    if (!block || pool_of(*block) != context) {
        return 0;
    }
    const size_t size = block->size;
    check(emm_memfree(pool_of(*block), block->ptr, size, EMM_STREAM_UNORDERED),
          "emm_memfree in a pressure callback");
    say("    gives back 0x%llx, %zu bytes", block->ptr, size);
    model.freed(block->ptr);
    forget(block);
    return size;
}

void World::come_home(Block &block) {
    if (block.home->context != block.context) {
        Stream &stream = any_stream(block.context);
        order(*block.home, stream);
        block.home = &stream;
    }
}

void World::forget(Block *block) {
    for (const auto &graph : graphs) {
        const size_t used =
            std::erase_if(graph->uses, [=](const Graph::Use &use) { return use.block == block; });
        graph->launchable &= used == 0;
    }
    std::erase_if(blocks, [=](const auto &each) { return each.get() == block; });
}

// Both ends of the block get the pattern. On the simulated driver all of the block counts as used.
void World::use(Block &block, Stream &stream) {
    if (block.flags & EMM_HOST_READ_ONLY && block.kind == Kind::registered) {
        return;
    }
    const unsigned pattern = next_pattern();
    const Ends ends(block.ptr, block.size);
    if (Graph *const graph = stream.capture) {
        std::erase_if(graph->uses, [&](const Graph::Use &use) { return use.block == &block; });
        graph->uses.push_back({&block, pattern, &stream});
        const auto at = std::find(graph->after.begin(), graph->after.end(), &stream);
        graph->shape += std::to_string(at - graph->after.begin()) + (ends.tail ? 't' : 'h');
    } else {
        block.pattern = pattern;
        block.home = &stream;
    }
    drive(stream.context, hand_of(stream), [&] {
        write_ends(driver, ends, pattern, stream.handle);
        const simcuda_range all = {block.ptr, block.size, 1, 0};
        if (driver.launch) {
            ::check(CUresult(driver.launch(stream.handle, nullptr, nullptr, &all, 1)), "a launch");
        }
    });
}

void World::look(const Block &block) {
    drive(block.home->context, hand_of(*block.home), [&] {
        if (!block.pattern) {
            ::check(driver.cuStreamSynchronize(block.home->handle), "cuStreamSynchronize");
        } else {
            expect_ends(driver, Ends(block.ptr, block.size), block.pattern, block.home->handle);
        }
    });
}

} // namespace model
