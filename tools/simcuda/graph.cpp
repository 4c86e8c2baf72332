#include "graph.h"

#include "call.h"
#include "capture.h"
#include "graph_memory.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

UserObject &find_user_object(CUuserObject handle) {
    return find_object(sim().user_objects, handle, "user object");
}

} // namespace

void release(UserObject *object, unsigned count) {
    object->references -= std::min(count, object->references);
    if (object->references == 0) {
        object->runs.seen_by(sim().host); // the program learns that the launches are over
        sim().callbacks.push_back(
            [=, destroy = object->destroy, argument = object->argument] { destroy(argument); });
        sim().user_objects.destroy(object->handle);
    }
}

Body::~Body() {
    for (const auto &node : nodes) {
        sim().nodes.erase(node->handle);
    }
    end_graph_memory(*this);
}

Held::~Held() {
    for (const auto &[object, count] : objects) {
        object->runs.join(runs, sim().host);
        release(object, count);
    }
}

Graph &find_graph(CUgraph handle) {
    return find_object(sim().graphs, handle, "graph");
}

Graph *make_graph() {
    auto *graph = new Graph;
    graph->handle = sim().graphs.insert(graph);
    return graph;
}

void end_graph(Graph *graph) {
    sim().graphs.destroy(graph->handle);
}

Node *append_node(Graph &graph, const char *call, const Bind &bind, std::vector<Node *> before) {
    auto node = std::make_unique<Node>();
    node->call = call;
    node->bind = bind;
    node->before = std::move(before);
    node->handle = sim().nodes.insert(node.get());
    graph.body->nodes.push_back(std::move(node));
    return graph.body->nodes.back().get();
}

bool find_nodes(const Graph &graph, const CUgraphNode *handles, size_t count,
                std::vector<Node *> &ret_nodes) {
    const auto &all = graph.body->nodes;
    for (size_t i = 0; i < count; ++i) {
        const auto found = std::find_if(
            all.begin(), all.end(), [&](const auto &node) { return node->handle == handles[i]; });
        if (found == all.end()) {
            return false;
        }
        ret_nodes.push_back(found->get());
    }
    return true;
}

Executable &find_executable(CUgraphExec handle) {
    return find_object(sim().executables, handle, "executable graph");
}

std::shared_ptr<Held> hold_too(const Held &held) {
    auto made = std::make_shared<Held>();
    made->objects = held.objects;
    for (const auto &[object, count] : made->objects) {
        object->references += count;
    }
    return made;
}

namespace {

bool is_executable(const Body &body) {
    return sim().executables.any(
        [&](const Executable &executable) { return executable.body.get() == &body; });
}

// Copies the nodes of `body` to the end of `graph`, behind `first`. Returns the copies that no
// other node follows.
std::vector<Node *> copy_nodes(const Body &body, const std::vector<Node *> &first, Graph &graph) {
    std::map<const Node *, Node *> copies;
    std::set<Node *> last;
    for (const auto &node : body.nodes) {
        std::vector<Node *> before;
        for (const Node *each : node->before) {
            before.push_back(copies[each]);
            last.erase(copies[each]);
        }
        copies[node.get()] =
            append_node(graph, node->call, node->bind, node->before.empty() ? first : before);
        last.insert(copies[node.get()]);
    }
    return {last.begin(), last.end()};
}

// A captured launch becomes part of the graph that captures it, with the objects that it retains.
void launch_in_capture(Stream &stream, const Executable &executable) {
    if (has_memory_nodes(*executable.body)) {
        check_no_capture(stream); // refuses
    }
    Graph &graph = *sim().graphs.find(stream.capture->graph);
    for (const auto &[object, count] : executable.held->objects) {
        object->references += count;
        graph.held->objects[object] += count;
    }
    const std::vector<Node *> last = copy_nodes(*executable.body, stream.last_nodes, graph);
    stream.last_nodes = last.empty() ? stream.last_nodes : last;
}

// One launch: every node becomes a piece of work. Consecutive nodes are one line of work; the first
// line is the stream's.
class Launch {
public:
    Launch(Executable &executable, Stream &stream)
        : executable_(executable), stream_(stream), before_(predecessors(stream)) {
        before_.push_back(executable.last);
        stream.clock.trim(sim().host);
        stream.clock.join(executable.clock, sim().host);
        start_ = stream.clock;
    }

    void run() {
        for (const auto &node : executable_.body->nodes) {
            add(*node);
        }
        const auto keep = [body = executable_.body, held = executable_.held] {};
        stream_.ended = stream_.clock;
        stream_.tail = sim().work.add(keep, false, all_.empty() ? before_ : all_);
        executable_.last = stream_.tail;
        executable_.clock = executable_.held->runs = stream_.clock;
    }

private:
    struct Step {
        OpRef op;
        Clock clock, begun;
        uint32_t line;
        bool kernel, continued;
    };

    uint32_t choose_line(const Node &node) {
        for (const Node *each : node.before) {
            if (Step &step = steps_.at(each); !step.continued) {
                step.continued = true;
                return step.line;
            }
        }
        return lines_++ == 0 ? stream_.line : sim().host.new_line();
    }

    void add(const Node &node) {
        Task task;
        if (node.bind) {
            node.bind(task);
        }
        Step step{nullptr, start_, start_, choose_line(node), task.kernel, false};
        std::vector<OpRef> before = before_;
        for (const Node *each : node.before) {
            before.push_back(steps_.at(each).op);
            const Step &earlier = steps_.at(each);
            const bool overlaps = task.programmatic && earlier.kernel;
            step.clock.join(earlier.clock, sim().host);
            step.begun.join(overlaps ? earlier.begun : earlier.clock, sim().host);
        }
        const uint64_t time = step.line == stream_.line ? ++stream_.time : ++time_;
        step.clock.set(step.line, time);
        const char *outer = std::exchange(this_thread.call, node.call);
        check_uses(task.uses, stream_, step.line, time, step.clock, step.begun);
        this_thread.call = outer;
        step.op = sim().work.add(std::move(task.run), task.outside, before, task.duration);
        all_.push_back(step.op);
        stream_.clock.join(step.clock, sim().host);
        steps_[&node] = std::move(step);
    }

    Executable &executable_;
    Stream &stream_;
    std::vector<OpRef> before_;
    Clock start_;
    std::map<const Node *, Step> steps_;
    std::vector<OpRef> all_;
    size_t lines_ = 0;
    uint64_t time_ = 0;
};

} // namespace

void api::graph_create(CUgraph *ph_graph, unsigned int flags) {
    expect(ph_graph && flags == 0);
    *ph_graph = make_graph()->handle;
}

void api::graph_destroy(CUgraph h_graph) {
    Graph &graph = find_graph(h_graph);
    if (capture_into(graph)) {
        refuse(misuse("a stream still captures into graph %p", static_cast<void *>(h_graph)));
    }
    end_graph(&graph);
}

void api::graph_clone(CUgraph *ph_graph_clone, CUgraph original_graph) {
    Graph &graph = find_graph(original_graph);
    expect(ph_graph_clone);
    expect(!has_memory_nodes(*graph.body), CUDA_ERROR_NOT_SUPPORTED);
    Graph *const clone = make_graph();
    clone->held = hold_too(*graph.held);
    copy_nodes(*graph.body, {}, *clone);
    *ph_graph_clone = clone->handle;
}

void api::graph_get_nodes(CUgraph h_graph, CUgraphNode *nodes, size_t *num_nodes) {
    Graph &graph = find_graph(h_graph);
    expect(num_nodes);
    const auto &all = graph.body->nodes;
    for (size_t i = 0; nodes && i < *num_nodes; ++i) {
        nodes[i] = i < all.size() ? all[i]->handle : nullptr;
    }
    *num_nodes = nodes ? std::min(*num_nodes, all.size()) : all.size();
}

void api::graph_instantiate(CUgraphExec *ph_graph_exec, CUgraph h_graph, unsigned long long flags) {
    Graph &graph = find_graph(h_graph);
    expect(ph_graph_exec);
    if (Capture *capture = capture_into(graph)) {
        fail_capture(*capture, CUDA_ERROR_INVALID_VALUE);
    }
    expect(!(has_memory_nodes(*graph.body) && is_executable(*graph.body)),
           CUDA_ERROR_NOT_SUPPORTED);
    auto *executable = new Executable;
    executable->body = graph.body;
    executable->frees_at_launch = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    executable->held = hold_too(*graph.held);
    executable->handle = *ph_graph_exec = sim().executables.insert(executable);
}

void api::graph_launch(CUgraphExec h_graph_exec, CUstream h_stream) {
    Executable &executable = find_executable(h_graph_exec);
    Stream &stream = find_stream(h_stream);
    check_capture(stream);
    if (stream.capture) {
        launch_in_capture(stream, executable);
        return;
    }
    expect((executable.frees_at_launch || !has_live(*executable.body)) &&
           can_free(*executable.body));
    Launch(executable, stream).run();
    graph_memory_launched(*executable.body, stream);
}

void api::graph_exec_destroy(CUgraphExec h_graph_exec) {
    find_executable(h_graph_exec);
    sim().executables.destroy(h_graph_exec);
}

void api::user_object_create(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                             unsigned int initial_refcount, unsigned int flags) {
    expect(object_out && destroy && initial_refcount != 0 &&
           flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    auto *object = new UserObject{nullptr, ptr, destroy, initial_refcount, {}};
    object->handle = *object_out = sim().user_objects.insert(object);
}

void api::user_object_retain(CUuserObject object, unsigned int count) {
    UserObject &found = find_user_object(object);
    expect(count != 0);
    found.references += count;
}

void api::user_object_release(CUuserObject object, unsigned int count) {
    UserObject &found = find_user_object(object);
    expect(count != 0);
    if (count > found.references) {
        refuse(misuse("%u references are released, and %u are held", count, found.references));
    }
    release(&found, count);
}

void api::graph_retain_user_object(CUgraph graph, CUuserObject object, unsigned int count,
                                   unsigned int flags) {
    Graph &holder = find_graph(graph);
    UserObject &found = find_user_object(object);
    expect(count != 0);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) {
        found.references += count;
    }
    holder.held->objects[&found] += count;
}

void api::graph_release_user_object(CUgraph graph, CUuserObject object, unsigned int count) {
    Graph &holder = find_graph(graph);
    UserObject &found = find_user_object(object);
    const auto held = holder.held->objects.find(&found);
    expect(held != holder.held->objects.end() && held->second >= count && count != 0);
    if ((held->second -= count) == 0) {
        holder.held->objects.erase(held);
    }
    release(&found, count);
}

} // namespace simcuda
