// Steps with captures and graphs.
#include "world.h"

#include <algorithm>

namespace model {
namespace {

constexpr size_t most_captures = 2, most_graphs = 8, most_copies = 3;

// Whether the stream may capture now.
bool announce(World &world, Stream &stream, bool announced, size_t hand) {
    emm_context *const context = world.places[stream.context].emm;
    stream.announced =
        announced &&
        world.done(world.call(hand, [&] { return emm_capture_begin(context, stream.handle); }),
                   "emm_capture_begin");
    return announced == stream.announced;
}

void begin_capture(World &world) {
    const size_t number = world.any_place();
    Stream &stream = world.any_stream(number);
    const size_t open =
        size_t(std::count_if(world.graphs.begin(), world.graphs.end(), [](const auto &each) {
            return each->graphs.empty() && each->execs.empty();
        }));
    // Beside an unannounced capture no request may run out of memory.
    const bool silent = world.settings.silent && !world.settings.tight && !world.settings.faults;
    const bool announced = stream.registered || !silent || world.one_in(2);
    if (open == most_captures || world.graphs.size() == most_graphs || stream.blocking) {
        return;
    }
    auto graph = std::make_unique<Graph>();
    graph->number = world.next_graph();
    graph->context = number;
    graph->hand = world.hand_of(stream);
    graph->after = {&stream};
    if (!announce(world, stream, announced, graph->hand)) {
        return;
    }
    const auto mode = CUstreamCaptureMode(world.below(3));
    world.drive(number, graph->hand, [&] {
        ::check(world.driver.cuStreamBeginCapture(stream.handle, mode), "cuStreamBeginCapture");
    });
    say("    stream %p of context %zu captures graph %zu in mode %d%s",
        static_cast<void *>(stream.handle), number, graph->number, mode,
        announced ? ", announced" : "");
    world.model.life_begins(graph->number);
    stream.capture = graph.get();
    world.graphs.push_back(std::move(graph));
}

// Allocates, uses existing blocks, or frees those of the stream.
void capture(World &world) {
    Stream *const stream = world.any_capturing();
    if (!stream) {
        return;
    }
    const size_t hand = stream->hand == no_hand ? world.any_hand() : stream->hand;
    const size_t dice = world.below(4);
    if (dice == 0 && world.blocks.size() < world.settings.live) {
        Block block;
        block.context = stream->context;
        block.size = world.chance.size();
        block.by_handle = world.settings.handles && world.one_in(4);
        if (Block *const made = world.allocate(block, *stream, stream->handle, hand)) {
            world.use(*made, *stream);
        }
        return;
    }
    std::vector<Block *> found;
    for (const auto &block : world.blocks) {
        if (block->is_plain() && block->kind != Kind::registered && block->kind != Kind::opened &&
            block->context == stream->context && (dice == 1 || block->home == stream)) {
            found.push_back(block.get());
        }
    }
    if (found.empty()) {
        return;
    }
    Block *const block = found[world.below(found.size())];
    for (const Graph::Use &use : stream->capture->uses) {
        if (use.block == block && use.stream != stream) {
            return;
        }
    }
    const bool paused = world.is_paused(*block);
    if (paused && (dice != 2 || block->home != stream)) {
        return;
    }
    if (!paused) {
        world.use(*block, *stream);
    }
    const bool launchable = stream->capture->launchable;
    if (dice == 2 && world.free(block, stream->handle, hand, stream->capture)) {
        stream->capture->launchable = launchable; // the graph holds the memory
    }
}

// Another stream joins, from here on behind the first stream's captured work.
void join_capture(World &world) {
    Stream *const first = world.any_capturing();
    Stream *const stream = first ? &world.any_stream(first->context) : nullptr;
    const bool silent = first && !first->announced;
    if (!first || stream->blocking || first->capture->after.size() > 2 ||
        !announce(world, *stream, stream->registered || !silent, world.hand_of(*stream))) {
        return;
    }
    world.order(*first, *stream);
    say("    stream %p joins graph %zu", static_cast<void *>(stream->handle),
        first->capture->number);
    stream->capture = first->capture;
    const auto &after = first->capture->after;
    const auto at = std::find(after.begin(), after.end(), first);
    first->capture->shape += 'j' + std::to_string(at - after.begin());
    first->capture->after.push_back(stream);
}

void end_capture(World &world) {
    if (Stream *const stream = world.any_capturing()) {
        world.end_capture(*stream);
    }
}

// --- graphs --------------------------------------------------------------------------------------

Graph *any_graph(World &world) {
    std::vector<Graph *> found;
    for (const auto &graph : world.graphs) {
        if (!graph->graphs.empty() || !graph->execs.empty()) {
            found.push_back(graph.get());
        }
    }
    return found.empty() ? nullptr : found[world.below(found.size())];
}

void copy(World &world) {
    Graph *const graph = any_graph(world);
    if (!graph || graph->graphs.empty() || world.places[graph->context].any_paused()) {
        return;
    }
    const CUgraph from = graph->graphs[world.below(graph->graphs.size())];
    world.drive(graph->context, world.any_hand(), [&] {
        CUgraph clone = nullptr;
        CUgraphExec exec = nullptr;
        if (world.one_in(3) && graph->graphs.size() < most_copies) {
            ::check(world.driver.cuGraphClone(&clone, from), "cuGraphClone");
            graph->graphs.push_back(clone);
            world.model.life_begins(graph->number);
        } else if (graph->launchable && graph->execs.size() < most_copies) {
            // A GPU's driver refuses to instantiate a graph that writes to memory that has gone
            // back to the driver.
            ::check(world.driver.cuGraphInstantiateWithFlags(&exec, from, 0),
                    "cuGraphInstantiateWithFlags");
            graph->execs.push_back(exec);
            world.model.life_begins(graph->number);
        }
    });
}

void launch(World &world) {
    Graph *const graph = any_graph(world);
    if (graph && graph->launchable && !graph->execs.empty() &&
        !world.places[graph->context].any_paused() &&
        std::none_of(graph->after.begin(), graph->after.end(),
                     [](const Stream *stream) { return stream->capture; }) &&
        std::none_of(graph->uses.begin(), graph->uses.end(),
                     [](const Graph::Use &use) { return use.block->home->capture; })) {
        world.launch(*graph, graph->execs[world.below(graph->execs.size())],
                     world.any_stream(graph->context));
    }
}

// It may be running.
void destroy(World &world) {
    Graph *const graph = any_graph(world);
    if (!graph) {
        return;
    }
    world.drive(graph->context, world.any_hand(), [&] {
        if (graph->execs.empty() || (!graph->graphs.empty() && world.one_in(2))) {
            ::check(world.driver.cuGraphDestroy(
                        taken_from(graph->graphs, world.below(graph->graphs.size()))),
                    "cuGraphDestroy");
        } else {
            ::check(world.driver.cuGraphExecDestroy(
                        taken_from(graph->execs, world.below(graph->execs.size()))),
                    "cuGraphExecDestroy");
        }
    });
    say("    a copy of graph %zu", graph->number);
    world.model.life_ends(graph->number);
    if (graph->graphs.empty() && graph->execs.empty()) {
        std::erase_if(world.graphs, [=](const auto &each) { return each.get() == graph; });
    }
}

// An executable graph of one graph becomes one of the other.
void update(World &world) {
    Graph *const from = any_graph(world), *const to = any_graph(world);
    if (!from || from == to || from->execs.empty() || to->graphs.empty() ||
        from->shape != to->shape || from->context != to->context ||
        world.places[to->context].any_paused() || to->execs.size() == most_copies) {
        return;
    }
    const CUgraphExec exec = taken_from(from->execs, world.below(from->execs.size()));
    CUgraphExecUpdateResultInfo info = {};
    world.drive(from->context, world.any_hand(), [&] {
        ::check(world.driver.cuGraphExecUpdate(exec, to->graphs[0], &info), "cuGraphExecUpdate");
    });
    say("    an executable of graph %zu becomes one of graph %zu", from->number, to->number);
    to->execs.push_back(exec);
    world.model.life_begins(to->number);
    world.model.life_ends(from->number);
    if (from->graphs.empty() && from->execs.empty()) {
        std::erase_if(world.graphs, [=](const auto &each) { return each.get() == from; });
    }
}

} // namespace

// Streams that have joined are joined in turn.
void World::end_capture(Stream &any) {
    Graph &graph = *any.capture;
    Stream &first = *graph.after.front();
    CUgraph made = nullptr;
    for (size_t i = graph.after.size(); i-- > 1;) {
        order(*graph.after[i], first);
    }
    drive(first.context, graph.hand,
          [&] { ::check(driver.cuStreamEndCapture(first.handle, &made), "cuStreamEndCapture"); });
    graph.graphs.push_back(made);
    for (Stream *const stream : graph.after) {
        stream->capture = nullptr;
        if (std::exchange(stream->announced, false)) {
            emm_context *const context = places[stream->context].emm;
            done(call(hand_of(*stream), [&] { return emm_capture_end(context, stream->handle); }),
                 "emm_capture_end"); // it has ended even if a driver call has failed
        }
    }
}

void World::launch(Graph &graph, CUgraphExec exec, Stream &stream) {
    for (const Stream *const before : graph.after) {
        order(*before, stream);
    }
    for (const Graph::Use &use : graph.uses) {
        order(*use.block->home, stream);
        use.block->home = &stream;
        use.block->pattern = use.pattern;
    }
    graph.after = {&stream};
    say("    graph %zu on stream %p", graph.number, static_cast<void *>(stream.handle));
    drive(stream.context, hand_of(stream),
          [&] { ::check(driver.cuGraphLaunch(exec, stream.handle), "cuGraphLaunch"); });
}

const std::vector<Action> graph_actions = {
    {"begin a capture", 20, &Settings::graphs, &begin_capture},
    {"capture", 60, &Settings::graphs, &capture},
    {"join a capture", 12, &Settings::joins, &join_capture},
    {"end a capture", 16, &Settings::graphs, &end_capture},
    {"copy a graph", 20, &Settings::graphs, &copy},
    {"launch", 30, &Settings::graphs, &launch},
    {"destroy", 16, &Settings::graphs, &destroy},
    {"update an executable graph", 10, &Settings::graphs, &update},
};

} // namespace model
