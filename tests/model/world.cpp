#include "world.h"

#include <algorithm>

namespace model {
namespace {

constexpr size_t own_streams = 4;
constexpr int most_trims = 16;

emm_plugin_info plugin_info() {
    auto info = sized<emm_plugin_info>();
    check(emm_get_plugin(&info), "emm_get_plugin");
    return info;
}

Promises promises_of(const Settings &settings) {
    Promises promises;
    const emm_plugin_info plugin = plugin_info();
    const std::string name = plugin.name;
    promises.keeps_account = name.rfind("template", 0) != 0 && name != "bad-pause";
    promises.exact_peak = name != "pool"; // its threads count for themselves
    // When a pool of the driver has no room, the driver empties it, and memory that cannot be
    // mapped goes back.
    promises.keeps_in_sections =
        !(name == "async" && settings.tight) && !(name == "pool" && settings.faults);
    promises.most = settings.most << 20;
    promises.changes_max = name == "pool";
    promises.resets_peaks = promises.keeps_account;
    promises.waits =
        name == "pool" && std::string(plugin.spec).find("growth=segment") == std::string::npos;
    promises.pauses = promises.waits || name == "bad-pause";
    return promises;
}

int device_count() {
    auto info = sized<emm_driver_info>();
    check(emm_get_driver(&info), "emm_get_driver");
    return int(info.device_count);
}

} // namespace

simcuda_counters Driver::counters() const {
    auto counters = sized<simcuda_counters>();
    if (get_counters) {
        get_counters(&counters);
    }
    return counters;
}

// The frees that the driver, when made to fail, has refused.
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
    : settings(its_settings), model(promises_of(its_settings)), hands(settings.threads) {
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
        for (const auto *table : {&memory_actions, &host_actions, &handle_actions, &graph_actions,
                                  &life_actions, &peer_actions, &pause_actions}) {
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
        for (size_t pool = 0; pool <= places[place].named.size(); pool++) {
            if (places[place].pool(pool)) {
                judge_pool(place, pool);
            }
        }
        device_account(places[place].device).judge();
    }
}

// A paused pool holds only spilled memory, and takes no memory until its resume.
void World::judge_pool(size_t place, size_t pool) {
    const emm_stats stats = stats_of(place, pool);
    model.judge(account_of(place, pool), stats);
    const Paused paused = places[place].paused[pool];
    if (paused != Paused::yes && stats.paused_bytes) {
        throw Wrong("memory is paused of a pool that is not");
    }
    if (paused == Paused::yes && stats.reserved_bytes > stats.spilled_bytes && !settings.faults) {
        throw Wrong("a paused pool holds " + std::to_string(stats.reserved_bytes) + " bytes");
    }
}

// A device that is not counted, as without a bound, has no figure of its own.
Account World::device_account(int device) {
    auto account = sized<emm_device_account>();
    check(emm_get_device_account(device, &account), "emm_get_device_account");
    const bool has_pools = account.managers[EMM_MEMORY_POOL].live != 0;
    return {account.limit_bytes, account.used_bytes, account.managers_bytes,
            has_pools ? driver_step : 0};
}

size_t World::any_pool(size_t place) {
    const size_t pool = settings.pools ? below(places[place].named.size() + 1) : 0;
    return places[place].pool(pool) ? pool : 0;
}

emm_stats World::stats_of(size_t place, size_t pool) {
    auto stats = sized<emm_stats>();
    check(emm_get_stats(places[place].pool(pool), &stats), "emm_get_stats");
    return stats;
}

// --- calls ---------------------------------------------------------------------------------------

size_t World::hand_of(const Stream &stream) {
    return stream.hand == no_hand ? any_hand() : stream.hand;
}

emm_status World::call(size_t hand, const std::function<emm_status()> &make) {
    const size_t current = below(places.size() + 1);
    const CUcontext context = current < places.size() ? places[current].cuda : nullptr;
    const bool in_turn = ++calls_ == settings.fail_call;
    const bool faulty =
        settings.faults && !is_calm_ && driver.fail && (one_in(settings.faults) || in_turn);
    const std::string fault = "any@" + std::to_string(in_turn ? settings.fail_nth : 1 + below(8));
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
    if (done(call(hand, make), what)) {
        return;
    }
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
    throw Wrong(std::string(what) + " had no reason to fail: " + emm_status_name(status));
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

// The stream's work need not be done: later work on `heir` is ordered behind it.
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

// Destroys the graphs made of a capture; they may be running.
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

void World::return_all_memory() {
    say("the end");
    while (Stream *const stream = any_capturing()) {
        end_capture(*stream);
    }
    is_calm_ = true;
    peer.reset(); // the peer may have our memory open
    resume_all();
    for (size_t place = 0; place < places.size(); place++) {
        destroy_graphs(place);
    }
    while (!blocks.empty()) {
        Block &block = *blocks.back();
        if (!is_paused(block)) {
            look(block);
        }
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
    resume_all(); // without live memory, there is room
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

// The pool is idle, so all memory is the cache's. A trim may leave memory that was not known to be
// complete when it began.
void World::empty_pool(size_t number, size_t pool) {
    emm_context *const context = places[number].pool(pool);
    emm_deviceptr ptr = 0; // a request tries again to return refused memory
    check(emm_memalloc(context, 256, EMM_STREAM_LEGACY, &ptr), "emm_memalloc");
    check(emm_memfree(context, ptr, 256, EMM_STREAM_LEGACY), "emm_memfree");
    emm_stats stats = stats_of(number, pool);
    for (int trims = 0; trims < most_trims && (stats.reserved_bytes || stats.host_reserved_bytes);
         trims++) {
        synchronize(number);
        check(call(0, [&] { return emm_trim(context, 0, nullptr); }), "emm_trim");
        stats = stats_of(number, pool);
    }
    if (stats.reserved_bytes || stats.host_reserved_bytes) {
        throw Wrong("after trims " + std::to_string(stats.reserved_bytes) + " bytes and " +
                    std::to_string(stats.host_reserved_bytes) + " of the host are reserved");
    }
}

void World::end_place(Place &place) {
    const size_t number = size_t(&place - places.data());
    for (size_t pool = 0; pool <= place.named.size(); pool++) {
        if (place.pool(pool)) {
            empty_pool(number, pool);
        }
    }
    while (!place.streams.back()->built_in()) {
        end_stream(*place.streams.back(), *place.streams.front());
    }
    synchronize(number);
    check(call(0, [&] { return emm_context_retire(place.emm); }), "emm_context_retire");
}

} // namespace model
