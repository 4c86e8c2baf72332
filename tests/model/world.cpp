#include "world.h"

#include <algorithm>

namespace model {
namespace {

constexpr size_t own_streams = 4;
constexpr int most_trims = 16;

void check(emm_status status, const char *what) {
    if (status < EMM_OK) {
        throw Wrong(std::string(what) + ": " + emm_last_error()->text);
    }
}

std::string plugin_name() {
    emm_plugin_info info = {};
    info.struct_size = sizeof info;
    check(emm_get_plugin(&info), "emm_get_plugin");
    return info.name;
}

Promises promises_of(const Settings &settings) {
    Promises promises;
    promises.exact_peak = plugin_name() != "pool"; // its threads count by themselves
    promises.keeps_in_sections = settings.faults == 0;
    promises.most = settings.most << 20;
    return promises;
}

int device_count() {
    emm_driver_info info = {};
    info.struct_size = sizeof info;
    check(emm_get_driver(&info), "emm_get_driver");
    return int(info.device_count);
}

} // namespace

simcuda_counters Driver::counters() const {
    simcuda_counters counters = {};
    counters.struct_size = sizeof counters;
    if (get_counters) {
        get_counters(&counters);
    }
    return counters;
}

// What the driver, being made to fail, has refused to take back.
uint64_t Driver::refused_ends() const {
    uint64_t count = 0;
    for (const char *name :
         {"cuEventDestroy", "cuStreamDestroy", "cuMemPoolDestroy", "cuMemAddressFree",
          "cuUserObjectRelease", "cuMemFree", "cuMemFreeAsync", "cuMemFreeHost",
          "cuMemHostUnregister", "cuMemRelease", "cuMemUnmap", "cuMemPoolTrimTo"}) {
        count += fault_count ? fault_count(name) : 0;
    }
    return count;
}

World::World(const Settings &its_settings, size_t seed)
    : settings(its_settings), waits_for_all_contexts(plugin_name() == "pool"),
      model(promises_of(its_settings)), hands(settings.threads) {
    before_ = driver.counters();
    refused_ends_ = driver.refused_ends();
    chance = Chance(seed);
    places.resize(settings.contexts);
    for (size_t number = 0; number < places.size(); number++) {
        make_place(number);
    }
    if (settings.pressure) {
        const auto give = [](emm_context *context, size_t, void *world) {
            return static_cast<World *>(world)->give_to(context);
        };
        check(emm_set_pressure_callback(give, this), "emm_set_pressure_callback");
    }
}

World::~World() {
    emm_set_pressure_callback(nullptr, nullptr);
    leave_context();
    for (const Place &place : places) {
        driver.cuCtxDestroy(place.cuda);
    }
}

void World::leave_context() {
    for (size_t hand = 0; hand < hands.count(); hand++) {
        hands.run(hand, [&] { return driver.cuCtxSetCurrent(nullptr); });
    }
}

void World::make_place(size_t number) {
    Place &place = places[number] = {};
    place.device = int(number) % device_count();
    ::check(driver.create_context(&place.cuda, 0, place.device), "cuCtxCreate");
    CUcontext popped = nullptr;
    ::check(driver.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
    check(emm_context_from(place.cuda, &place.emm), "emm_context_from");
    for (const uintptr_t handle : {0, 1}) {
        place.streams.push_back(std::make_unique<Stream>(
            Stream{number, reinterpret_cast<CUstream>(handle), no_hand, false, true}));
    }
    for (size_t hand = 0; hand < hands.count(); hand++) {
        place.streams.push_back(
            std::make_unique<Stream>(Stream{number, EMM_STREAM_PER_THREAD, hand, false, true}));
    }
    for (size_t i = 0; i < own_streams; i++) {
        make_stream(number, i % 2 == 0);
    }
}

void World::step(size_t number) {
    static const std::vector<Action> actions = [] {
        std::vector<Action> all;
        for (const auto *table :
             {&memory_actions, &host_actions, &handle_actions, &graph_actions, &life_actions}) {
            all.insert(all.end(), table->begin(), table->end());
        }
        return all;
    }();
    size_t weights = 0;
    for (const Action &action : actions) {
        weights += action.weight;
    }
    size_t dice = below(weights);
    for (const Action &action : actions) {
        if (dice < action.weight) {
            say("%zu: %s", number, action.name);
            if (!action.group || settings.*action.group) {
                action.act(*this);
            }
            break;
        }
        dice -= action.weight;
    }
    if (one_in(settings.judged)) {
        judge();
    }
}

void World::judge() {
    for (size_t place = 0; place < places.size(); place++) {
        model.judge(place, stats_of(place));
    }
}

emm_stats World::stats_of(size_t place) {
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    check(emm_get_stats(places[place].emm, &stats), "emm_get_stats");
    return stats;
}

// --- calls ---------------------------------------------------------------------------------------

size_t World::hand_of(const Stream &stream) {
    return stream.hand == no_hand ? any_hand() : stream.hand;
}

emm_status World::call(size_t hand, const std::function<emm_status()> &make) {
    const size_t current = below(places.size() + 1);
    const CUcontext context = current < places.size() ? places[current].cuda : nullptr;
    const bool faulty = settings.faults && !is_calm_ && driver.fail && one_in(settings.faults);
    const std::string fault = "any@" + std::to_string(1 + below(8));
    const uint64_t faults = driver.counters().faults;
    std::string text;
    const emm_status status = hands.run(hand, [&] {
        ::check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent");
        if (faulty) {
            driver.fail(fault.c_str());
        }
        const emm_status answer = make();
        if (faulty) {
            driver.fail(nullptr);
        }
        text = answer < EMM_OK ? emm_last_error()->text : "";
        return answer;
    });
    has_faulted_ = driver.counters().faults != faults;
    if (status < EMM_OK) {
        say("    thread %zu: %d, %s", hand, status, text.c_str());
    }
    return status;
}

void World::carry_out(size_t hand, const std::function<emm_status()> &make, const char *what) {
    if (!done(call(hand, make), what)) {
        carry_out_calmly(hand, make, what);
    }
}

void World::carry_out_calmly(size_t hand, const std::function<emm_status()> &make,
                             const char *what) {
    const bool before = std::exchange(is_calm_, true);
    const bool succeeds = done(call(hand, make), what);
    is_calm_ = before;
    if (!succeeds) {
        throw Wrong(std::string(what) + " fails again");
    }
}

bool World::done(emm_status status, const char *what, emm_status may_be) {
    if (status >= EMM_OK || status == may_be) {
        return status >= EMM_OK;
    }
    const bool out = status == EMM_E_OUT_OF_MEMORY || status == EMM_E_OUT_OF_HOST_MEMORY;
    if ((out && settings.tight) || has_faulted_) {
        return false;
    }
    throw Wrong(std::string(what) + " had no reason to fail");
}

void World::refused(emm_status status, emm_status expected, const char *what) {
    if (status != expected && !(has_faulted_ && status < EMM_OK)) {
        throw Wrong(std::string(what) + ": expected " + std::to_string(expected) + ", found " +
                    std::to_string(status));
    }
}

void World::drive(size_t place, size_t hand, const std::function<void()> &make) {
    hands.run(hand, [&] {
        const emm::cuda::RelaxedCapture relaxed(driver);
        ::check(driver.cuCtxSetCurrent(places[place].cuda), "cuCtxSetCurrent");
        make();
        return true;
    });
}

// --- streams -------------------------------------------------------------------------------------

Stream &World::any_stream(size_t place) {
    std::vector<Stream *> found;
    for (const auto &stream : places[place].streams) {
        if (!stream->capture) {
            found.push_back(stream.get());
        }
    }
    return *found[below(found.size())];
}

Stream *World::any_capturing() {
    std::vector<Stream *> found;
    for (const Place &place : places) {
        for (const auto &stream : place.streams) {
            if (stream->capture) {
                found.push_back(stream.get());
            }
        }
    }
    return found.empty() ? nullptr : found[below(found.size())];
}

bool World::unannounced(size_t place) const {
    const auto &streams = places[place].streams;
    return std::any_of(streams.begin(), streams.end(),
                       [](const auto &stream) { return stream->capture && !stream->announced; });
}

bool World::unannounced() const {
    for (size_t place = 0; place < places.size(); place++) {
        if (unannounced(place)) {
            return true;
        }
    }
    return false;
}

Stream &World::make_stream(size_t place, bool registered) {
    const bool blocking = one_in(4);
    auto made = std::make_unique<Stream>(Stream{place, nullptr, no_hand, registered, blocking});
    const unsigned flags = blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
    drive(place, 0,
          [&] { ::check(driver.cuStreamCreate(&made->handle, flags), "cuStreamCreate"); });
    if (registered) {
        carry_out(
            0, [&] { return emm_stream_register(places[place].emm, made->handle); },
            "emm_stream_register");
    }
    places[place].streams.push_back(std::move(made));
    return *places[place].streams.back();
}

// Its work need not be done: what comes next on `heir` is ordered after it.
void World::end_stream(Stream &stream, Stream &heir) {
    rehome(stream, heir);
    Place &place = places[stream.context];
    if (stream.registered) {
        carry_out(
            hand_of(stream), [&] { return emm_stream_retire(place.emm, stream.handle); },
            "emm_stream_retire");
    }
    drive(stream.context, 0,
          [&] { ::check(driver.cuStreamDestroy(stream.handle), "cuStreamDestroy"); });
    std::erase_if(place.streams, [&](const auto &each) { return each.get() == &stream; });
}

void World::order(const Stream &before, const Stream &after) {
    if (&before == &after) {
        return;
    }
    CUevent event = nullptr;
    drive(before.context, hand_of(before), [&] {
        ::check(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        ::check(driver.cuEventRecord(event, before.handle), "cuEventRecord");
    });
    drive(after.context, hand_of(after), [&] {
        ::check(driver.cuStreamWaitEvent(after.handle, event, 0), "cuStreamWaitEvent");
        ::check(driver.cuEventDestroy(event), "cuEventDestroy");
    });
}

void World::rehome(const Stream &stream, Stream &heir) {
    order(stream, heir);
    for (const auto &block : blocks) {
        block->home = block->home == &stream ? &heir : block->home;
    }
    for (const auto &graph : graphs) {
        std::replace(graph->after.begin(), graph->after.end(), const_cast<Stream *>(&stream),
                     &heir);
    }
}

void World::synchronize(size_t place) {
    drive(place, 0, [&] { ::check(driver.cuCtxSynchronize(), "cuCtxSynchronize"); });
}

void World::synchronize(const Stream &stream) {
    drive(stream.context, hand_of(stream),
          [&] { ::check(driver.cuStreamSynchronize(stream.handle), "cuStreamSynchronize"); });
}

// --- allocations ---------------------------------------------------------------------------------

Block *World::any_block(bool (*is)(const Block &)) {
    std::vector<Block *> found;
    for (const auto &block : blocks) {
        if (!block->home->capture && is(*block)) {
            found.push_back(block.get());
        }
    }
    return found.empty() ? nullptr : found[below(found.size())];
}

// Runs on the thread that asks.
emm_status World::request(Block &block, emm_stream stream) {
    emm_context *const context = places[block.context].emm;
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
    block.home = &home;
    block.free_stream = block.kind == Kind::device ? stream : EMM_STREAM_UNORDERED;
    block.free_hand = hand;
    block.ptr = untouched;
    block.references = {reinterpret_cast<emm_memory *>(untouched)};
    const emm_status status = call(hand, [&] { return request(block, stream); });
    if (has_faulted_ || status == EMM_E_CAPTURING) {
        model.lost_count_of_failures(block.context); // asked again, or refused before
    }
    const Graph *const capture = stream == home.handle ? home.capture : nullptr;
    if (!done(status, "an allocation", capture ? EMM_E_CAPTURING : EMM_OK)) {
        if (block.kind == Kind::device) {
            model.failed(block.context, true);
        }
        if (block.ptr != untouched || block.references[0] != reinterpret_cast<void *>(untouched)) {
            throw Wrong("an allocation failed, and has written to its output");
        }
        return nullptr;
    }
    const bool host = block.kind == Kind::pinned || block.kind == Kind::registered;
    if (block.by_handle) {
        judge_handle(block);
        emm_memory_info info = {};
        info.struct_size = sizeof info;
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
    say("    thread %zu, stream %p of context %zu: %zu bytes of %s memory at 0x%llx%s", hand,
        static_cast<void *>(stream), block.context, block.size, name_of(block.kind), block.ptr,
        block.by_handle ? ", a handle" : "");
    model.allocated(block.context, block.kind, block.ptr, block.size,
                    capture ? capture->number : 0);
    blocks.push_back(std::make_unique<Block>(std::move(block)));
    return blocks.back().get();
}

void World::judge_handle(const Block &block) {
    emm_memory_info info = {};
    info.struct_size = sizeof info;
    check(emm_memory_get_info(block.references[0], &info), "emm_memory_get_info");
    if (info.state != EMM_MEMORY_LIVE || info.size != block.size || info.flags != block.flags ||
        info.context != places[block.context].emm || info.owner != block.owned.get() ||
        (info.stream != block.free_stream)) {
        throw Wrong("a handle tells of other memory");
    }
}

// Runs on the thread that frees.
emm_status World::give_back(const Block &block, size_t size, emm_stream stream) {
    emm_context *const context = places[block.context].emm;
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

// All uses are ordered before what comes next on `stream`. What is registered is the program's
// again at once, so it waits first.
bool World::free(Block *block, emm_stream stream, size_t hand, const Graph *capture) {
    say("    thread %zu, stream %p: frees 0x%llx, %zu bytes of context %zu", hand,
        static_cast<void *>(stream), block->ptr, block->size, block->context);
    if (block->kind == Kind::registered) {
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

// On the thread that has run out of memory, inside its call.
size_t World::give_to(const emm_context *context) {
    Block *const block = any_block([](const Block &each) {
        return each.kind == Kind::device && !each.by_handle && each.is_plain();
    });
    if (!block || places[block->context].emm != context) {
        return 0;
    }
    const size_t size = block->size;
    check(emm_memfree(places[block->context].emm, block->ptr, size, EMM_STREAM_UNORDERED),
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

// The ends get the pattern. On the simulated driver all of it counts as used.
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

// Those that are made of a capture; they may be running.
void World::destroy_graphs(size_t place) {
    for (const auto &graph : graphs) {
        if (graph->context != place) {
            continue;
        }
        for (const CUgraph each : graph->graphs) {
            ::check(driver.cuGraphDestroy(each), "cuGraphDestroy");
            model.life_ends(graph->number);
        }
        for (const CUgraphExec each : graph->execs) {
            ::check(driver.cuGraphExecDestroy(each), "cuGraphExecDestroy");
            model.life_ends(graph->number);
        }
    }
    std::erase_if(graphs, [=](const auto &each) { return each->context == place; });
}

// --- the end -------------------------------------------------------------------------------------

void World::settle() {
    say("the end");
    while (Stream *const stream = any_capturing()) {
        end_capture(*stream);
    }
    is_calm_ = true;
    for (size_t place = 0; place < places.size(); place++) {
        destroy_graphs(place);
    }
    while (!blocks.empty()) {
        Block &block = *blocks.back();
        look(block);
        come_home(block);
        while (!block.is_plain()) {
            check(emm_memory_release(block.references.back()), "emm_memory_release");
            block.references.pop_back();
        }
        free(&block, *block.home);
    }
    while (!inert.empty()) {
        release_inert(inert.size() - 1);
    }
    for (size_t place = 0; place < places.size(); place++) {
        for (; places[place].sections; places[place].sections--) {
            check(emm_defer_cleanup_end(places[place].emm), "emm_defer_cleanup_end");
            model.section_ends(place);
        }
        synchronize(place);
    }
    judge();
    for (Place &place : places) {
        end_place(place);
    }
    const simcuda_counters after = driver.counters();
    if ((after.objects != before_.objects || after.device_bytes != before_.device_bytes ||
         after.host_bytes != before_.host_bytes) &&
        driver.refused_ends() == refused_ends_) {
        throw Wrong("left behind: " + std::to_string(after.objects - before_.objects) +
                    " objects of the driver, " +
                    std::to_string(after.device_bytes - before_.device_bytes) +
                    " bytes of device memory, " +
                    std::to_string(after.host_bytes - before_.host_bytes) + " of host memory");
    }
}

// It has nothing to do, so all memory is the cache's. A trim may leave what was not known to be
// complete when it began.
void World::end_place(Place &place) {
    const size_t number = size_t(&place - places.data());
    emm_stats stats = stats_of(number);
    for (int trims = 0; trims < most_trims && (stats.reserved_bytes || stats.host_reserved_bytes);
         trims++) {
        emm_deviceptr ptr = 0; // a request tries again to return what was refused
        synchronize(number);
        check(emm_memalloc(place.emm, 256, EMM_STREAM_LEGACY, &ptr), "emm_memalloc");
        check(emm_memfree(place.emm, ptr, 256, EMM_STREAM_LEGACY), "emm_memfree");
        check(call(0, [&] { return emm_trim(place.emm, 0, nullptr); }), "emm_trim");
        stats = stats_of(number);
    }
    if (stats.reserved_bytes || stats.host_reserved_bytes) {
        throw Wrong("after trims " + std::to_string(stats.reserved_bytes) + " bytes and " +
                    std::to_string(stats.host_reserved_bytes) + " of the host are reserved");
    }
    while (!place.streams.back()->built_in()) {
        end_stream(*place.streams.back(), *place.streams.front());
    }
    synchronize(number);
    check(call(0, [&] { return emm_context_retire(place.emm); }), "emm_context_retire");
}

} // namespace model
