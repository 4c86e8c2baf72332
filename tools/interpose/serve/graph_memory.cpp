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
    if (graph.capture_id != capture.id) {
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
    return found == graphs_.end() || found->second.capture_id != capture.id ? nullptr
                                                                            : &found->second;
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
        graph.leaves.reserve(graph.leaves.size() + 1);
        graph.token->memory.reserve(graph.token->memory.size() + 1);
    }
    return result;
}

void GraphMemory::add(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    if (Graph *const graph = find(capture)) {
        graph->leaves.push_back(name);
        graph->token->memory.push_back(name);
    }
}

bool GraphMemory::has(const Capture &capture, AllocationName name) {
    const std::lock_guard lock(mutex_);
    const Graph *const graph = find(capture);
    return graph && contains(graph->leaves, name);
}

void GraphMemory::remove(const Capture &capture, AllocationName name) noexcept {
    const std::lock_guard lock(mutex_);
    if (Graph *const graph = find(capture)) {
        std::erase(graph->leaves, name);
    }
}

bool GraphMemory::add_free(const Capture &capture, AllocationName name) {
    const std::lock_guard lock(mutex_);
    Graph &graph = graph_of(capture);
    if (contains(graph.frees, name)) {
        return false;
    }
    graph.frees.push_back(name);
    return true;
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

void GraphMemory::graph_ended(CUgraph graph) {
    const std::lock_guard lock(mutex_);
    graphs_.erase(graph);
    note_any();
}

void GraphMemory::made_executable(CUgraphExec executable, CUgraph graph) {
    const std::lock_guard lock(mutex_);
    executables_.erase(executable);
    const auto found = graphs_.find(graph);
    if (found != graphs_.end() && found->second.complete &&
        !(found->second.leaves.empty() && found->second.frees.empty())) {
        executables_[executable] = std::make_shared<const Executable>(
            Executable{found->second.leaves, found->second.frees});
    }
    note_any();
}

void GraphMemory::executable_ended(CUgraphExec executable) {
    const std::lock_guard lock(mutex_);
    executables_.erase(executable);
    note_any();
}

std::vector<Allocation> GraphMemory::launched(CUgraphExec executable) {
    std::shared_ptr<const Executable> what;
    {
        const std::lock_guard lock(mutex_);
        const auto found = executables_.find(executable);
        if (found == executables_.end()) {
            return {};
        }
        what = found->second;
    }
    std::vector<Allocation> freed;
    freed.reserve(what->frees.size());
    for (const AllocationName name : what->frees) {
        const Allocation taken = allocations_.take(name);
        if (taken.address != 0 && taken.kind != Kind::captured) {
            freed.push_back(taken);
        }
    }
    for (const AllocationName name : what->leaves) {
        allocations_.set_launched(name);
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

// On any thread, where no call of the driver is allowed.
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
        return; // it stays with the plugin until the context ends
    }
}

} // namespace emm::run
