#include "graph_memory.h"

#include <algorithm>

namespace emm::run {
namespace {

bool contains(const std::vector<AllocationName> &names, AllocationName name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

} // namespace

// --- captures ----------------------------------------------------------------------------------

CUresult GraphMemory::capture_of(CUstream stream, Capture &ret_capture) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = nullptr;
    const CUresult result =
        driver_.get_capture_info(stream, &status, &id, &graph, nullptr, nullptr);
    if (result != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE) {
        return result;
    }
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    ret_capture = {graph, id};
    return CUDA_SUCCESS;
}

// A handle of a graph whose capture failed may be another graph's by now.
GraphMemory::Graph &GraphMemory::graph_of(const Capture &capture) {
    Graph &graph = graphs_[capture.graph];
    if (capture.id == 0) {
        graph.complete = graph.complete || graph.capture_id == 0;
    } else if (graph.capture_id != capture.id) {
        if (!graph.complete) {
            graph = {};
        }
        graph.capture_id = capture.id;
        graph.complete = false;
    }
    note_any();
    return graph;
}

GraphMemory::Graph *GraphMemory::find(const Capture &capture) {
    const auto found = graphs_.find(capture.graph);
    const bool is_its =
        found != graphs_.end() && (capture.id == 0 || found->second.capture_id == capture.id);
    return is_its ? &found->second : nullptr;
}

const GraphMemory::Graph *GraphMemory::find(CUgraph graph) const {
    const auto found = graphs_.find(graph);
    return found != graphs_.end() && found->second.complete ? &found->second : nullptr;
}

CUresult GraphMemory::make_token(Graph &graph, CUgraph handle) {
    auto token = std::make_unique<Token>();
    token->owner = this;
    CUuserObject object = nullptr;
    CUresult result = driver_.cuUserObjectCreate(&object, token.get(), &graph_is_gone, 1,
                                                 CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    Token *const made = token.release(); // the object's from here on
    result = driver_.cuGraphRetainUserObject(handle, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    if (result != CUDA_SUCCESS) {
        driver_.cuUserObjectRelease(object, 1);
        return result;
    }
    graph.token = made;
    return CUDA_SUCCESS;
}

CUresult GraphMemory::prepare(const Capture &capture) {
    const std::lock_guard lock(mutex_);
    Graph &graph = graph_of(capture);
    const CUresult result = graph.token ? CUDA_SUCCESS : make_token(graph, capture.graph);
    if (result == CUDA_SUCCESS) {
        graph.uses.leaves.reserve(graph.uses.leaves.size() + 1);
        graph.uses.frees.reserve(graph.uses.frees.size() + 1);
        graph.token->memory.reserve(graph.token->memory.size() + 1);
    }
    return result;
}

void GraphMemory::add(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    if (Graph *const graph = find(capture)) {
        graph->allocates = true;
        graph->uses.leaves.push_back(name);
        graph->token->memory.push_back(name);
    }
}

bool GraphMemory::leaves(const Capture &capture, AllocationName name) {
    const std::lock_guard lock(mutex_);
    const Graph *const graph = find(capture);
    return graph && contains(graph->uses.leaves, name) && !contains(graph->uses.frees, name);
}

void GraphMemory::remove(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    if (Graph *const graph = find(capture)) {
        std::erase(graph->uses.leaves, name);
    }
}

bool GraphMemory::add_free(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    Graph *const graph = find(capture);
    if (!graph || contains(graph->uses.frees, name)) {
        return false;
    }
    graph->uses.frees.push_back(name);
    return true;
}

void GraphMemory::remove_free(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    if (Graph *const graph = find(capture)) {
        std::erase(graph->uses.frees, name);
    }
}

// --- graphs ------------------------------------------------------------------------------------

void GraphMemory::note_any() noexcept {
    any_.store(!graphs_.empty() || !executables_.empty(), std::memory_order_relaxed);
}

void GraphMemory::capture_ended(CUgraph graph) {
    const std::lock_guard lock(mutex_);
    const auto found = graphs_.find(graph);
    if (found != graphs_.end()) {
        found->second.complete = true;
    }
}

void GraphMemory::capture_lost(uint64_t id) {
    if (id != 0 && any()) {
        const std::lock_guard lock(mutex_);
        std::erase_if(graphs_, [id](const auto &each) {
            return each.second.capture_id == id && !each.second.complete;
        });
        note_any();
    }
}

bool GraphMemory::has_nodes(CUgraph graph) {
    const std::lock_guard lock(mutex_);
    const Graph *const found = find(graph);
    return found && (found->allocates || !found->uses.frees.empty());
}

void GraphMemory::graph_ended(CUgraph graph) {
    const std::lock_guard lock(mutex_);
    graphs_.erase(graph);
    note_any();
}

void GraphMemory::graph_moved(CUgraph child, CUgraph parent) {
    const std::lock_guard lock(mutex_);
    if (const Graph *const from = find(child)) {
        Graph &graph = graph_of({parent, 0});
        graph.allocates = graph.allocates || from->allocates;
        Uses &to = graph.uses;
        to.leaves.insert(to.leaves.end(), from->uses.leaves.begin(), from->uses.leaves.end());
        to.frees.insert(to.frees.end(), from->uses.frees.begin(), from->uses.frees.end());
        graphs_.erase(child);
    }
}

void GraphMemory::made_executable(CUgraphExec executable, CUgraph graph, bool frees_left) {
    const std::lock_guard lock(mutex_);
    executables_.erase(executable);
    if (const Graph *const from = find(graph)) {
        executables_[executable] =
            std::make_shared<const Executable>(Executable{from->uses, frees_left});
    }
    note_any();
}

void GraphMemory::executable_updated(CUgraphExec executable, CUgraph graph) {
    const auto before = find(executable);
    made_executable(executable, graph, before && before->frees_left);
}

void GraphMemory::executable_ended(CUgraphExec executable) {
    const std::lock_guard lock(mutex_);
    executables_.erase(executable);
    note_any();
}

// --- launches ----------------------------------------------------------------------------------

std::shared_ptr<const GraphMemory::Executable> GraphMemory::find(CUgraphExec executable) {
    const std::lock_guard lock(mutex_);
    const auto found = executables_.find(executable);
    return found == executables_.end() ? nullptr : found->second;
}

bool GraphMemory::is_programs(AllocationName name) {
    const Allocation found = allocations_.find(name.address);
    return found.id == name.id && found.is_programs();
}

bool GraphMemory::can_launch(const Executable &executable) {
    const Names &leaves = executable.uses.leaves, &frees = executable.uses.frees;
    const bool has_left = std::any_of(leaves.begin(), leaves.end(),
                                      [this](AllocationName name) { return is_programs(name); });
    const bool has_all = std::all_of(frees.begin(), frees.end(), [&](AllocationName name) {
        return contains(leaves, name) || is_programs(name);
    });
    return (executable.frees_left || !has_left) && has_all;
}

std::vector<Allocation> GraphMemory::launched(const Executable &executable) {
    std::vector<Allocation> freed;
    freed.reserve(executable.uses.frees.size());
    for (const AllocationName name : executable.uses.leaves) {
        allocations_.set_launched(name);
    }
    for (const AllocationName name : executable.uses.frees) {
        const Allocation taken = allocations_.take(name);
        if (taken.address != 0 && taken.kind != Kind::captured) {
            freed.push_back(taken);
        }
    }
    return freed;
}

// --- the end of a graph ------------------------------------------------------------------------

void GraphMemory::post(Token *token) noexcept {
    token->next = ended_.load(std::memory_order_relaxed);
    while (!ended_.compare_exchange_weak(token->next, token, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
}

// The driver calls this on any thread, and allows no driver call in it.
void GraphMemory::graph_is_gone(void *argument) {
    auto *const token = static_cast<Token *>(argument);
    token->owner->post(token);
}

void GraphMemory::end(const Token &token, std::vector<Allocation> &ret_given_back) {
    const std::lock_guard lock(mutex_);
    std::erase_if(graphs_, [&](const auto &each) { return each.second.token == &token; });
    note_any();
    for (const AllocationName name : token.memory) {
        const Allocation ended = allocations_.end_graph(name);
        if (ended.address != 0) {
            ret_given_back.push_back(ended);
        }
    }
}

std::vector<Allocation> GraphMemory::take_ended() {
    std::vector<Allocation> given_back;
    {
        const std::lock_guard lock(mutex_);
        given_back.swap(refused_);
    }
    Token *next = ended_.exchange(nullptr, std::memory_order_acquire);
    while (next) {
        Token *const token = next;
        next = token->next;
        try {
            given_back.reserve(given_back.size() + token->memory.size());
        } catch (const std::bad_alloc &) {
            post(token); // another time
            continue;
        }
        end(*token, given_back);
        delete token;
    }
    return given_back;
}

void GraphMemory::put_back(const Allocation &allocation) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        refused_.push_back(allocation);
    } catch (const std::bad_alloc &) {
        return; // the memory stays with the plugin until the context ends
    }
}

} // namespace emm::run
