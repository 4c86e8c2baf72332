#include "capture.h"

#include "call.h"
#include "graph.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {

void fail_capture(Capture &capture, CUresult result) {
    capture.invalid = true;
    refuse(result);
}

Capture *capture_into(const Graph &graph) {
    const auto &captures = sim().captures;
    const auto found = std::find_if(captures.begin(), captures.end(), [&](const auto &capture) {
        return capture->graph == graph.handle;
    });
    return found == captures.end() ? nullptr : found->get();
}

namespace {

// Refuses the call if any of these captures goes on, and invalidates all of them.
template <class Owners, class Select>
void refuse_any(const Owners &owners, Select capture_of, CUresult otherwise) {
    bool any = false;
    for (const auto &owner : owners) {
        if (Capture *const capture = capture_of(*owner)) {
            capture->invalid = any = true;
        }
    }
    expect(!any, otherwise);
}

// The capture of a stream that synchronizes with the legacy stream.
Capture *capture_beside_legacy(const Stream &stream) {
    return stream.blocking() ? stream.capture.get() : nullptr;
}

// Whether this capture forbids this thread's calls that may disturb it.
bool concerns_thread(const Capture &capture) {
    if (this_thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    return capture.thread == this_thread.number ||
           (this_thread.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
            capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void leave_capture(Stream &stream) {
    stream.capture->streams.erase(&stream);
    stream.capture = nullptr;
    stream.last_nodes.clear();
}

void end_capture(const std::shared_ptr<Capture> &capture) {
    while (!capture->streams.empty()) {
        leave_capture(**capture->streams.begin());
    }
    std::erase(sim().captures, capture);
}

bool all_joined(const Capture &capture) {
    std::set<const Node *> reached;
    std::vector<const Node *> next(capture.origin->last_nodes.begin(),
                                   capture.origin->last_nodes.end());
    while (!next.empty()) {
        const Node *node = next.back();
        next.pop_back();
        if (reached.insert(node).second) {
            next.insert(next.end(), node->before.begin(), node->before.end());
        }
    }
    const auto has_all = [&](const std::vector<Node *> &nodes) {
        return std::all_of(nodes.begin(), nodes.end(),
                           [&](const Node *node) { return reached.count(node) != 0; });
    };
    return has_all(capture.left) &&
           std::all_of(capture.streams.begin(), capture.streams.end(),
                       [&](const Stream *stream) { return has_all(stream->last_nodes); });
}

void add_last_nodes(Stream &stream, const std::vector<Node *> &nodes) {
    for (Node *node : nodes) {
        if (std::find(stream.last_nodes.begin(), stream.last_nodes.end(), node) ==
            stream.last_nodes.end()) {
            stream.last_nodes.push_back(node);
        }
    }
}

Stream &find_to_capture(CUstream handle, CUstreamCaptureMode mode) {
    Stream &stream = find_stream(handle);
    expect(mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    expect(stream.kind != Stream::Kind::legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect(!stream.capture, CUDA_ERROR_ILLEGAL_STATE);
    return stream;
}

void begin_capture(Stream &stream, CUstreamCaptureMode mode, CUgraph graph) {
    auto capture = std::make_shared<Capture>();
    capture->id = ++sim().capture_ids;
    capture->mode = mode;
    capture->thread = this_thread.number;
    capture->origin = &stream;
    capture->graph = graph;
    capture->streams.insert(&stream);
    sim().captures.push_back(capture);
    stream.capture = capture;
}

} // namespace

void destroy_in_capture(Stream &stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture->origin == &stream) {
        end_capture(capture);
        end_graph(sim().graphs.find(capture->graph));
        return;
    }
    capture->left.insert(capture->left.end(), stream.last_nodes.begin(), stream.last_nodes.end());
    leave_capture(stream);
}

void check_capture(Stream &stream) {
    if (stream.capture) {
        expect(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    } else if (stream.kind == Stream::Kind::legacy) {
        refuse_any(stream.context->streams, capture_beside_legacy,
                   CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
}

void check_no_capture(Stream &stream) {
    check_capture(stream);
    if (stream.capture) {
        fail_capture(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
}

void check_no_captures(Context &context) {
    refuse_any(
        context.streams, [](const Stream &stream) { return stream.capture.get(); },
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_unsafe_call() {
    refuse_any(
        sim().captures,
        [](Capture &capture) { return concerns_thread(capture) ? &capture : nullptr; },
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void add_node(Stream &stream, const Bind &bind) {
    Graph &graph = *sim().graphs.find(stream.capture->graph);
    stream.last_nodes = {append_node(graph, this_thread.call, bind, stream.last_nodes)};
}

void wait_in_capture(Event &event, Stream &stream) {
    if (!event.capture) {
        fail_capture(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    expect(!event.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect(!event.capture->streams.empty(), CUDA_ERROR_CAPTURED_EVENT);
    if (stream.kind == Stream::Kind::legacy) {
        fail_capture(*event.capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream.capture && stream.capture != event.capture) {
        event.capture->invalid = true;
        fail_capture(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    stream.capture = event.capture;
    stream.capture->streams.insert(&stream);
    add_last_nodes(stream, event.nodes);
}

void api::stream_begin_capture_v1(CUstream h_stream) {
    stream_begin_capture(h_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

void api::stream_begin_capture(CUstream h_stream, CUstreamCaptureMode mode) {
    begin_capture(find_to_capture(h_stream, mode), mode, make_graph()->handle);
}

void api::stream_begin_capture_to_graph(CUstream h_stream, CUgraph h_graph,
                                        const CUgraphNode *dependencies, const CUgraphEdgeData *,
                                        size_t num_dependencies, CUstreamCaptureMode mode) {
    std::vector<Node *> nodes;
    Stream &stream = find_to_capture(h_stream, mode);
    const Graph &graph = find_graph(h_graph);
    expect(!capture_into(graph) &&
           find_nodes(graph, dependencies, dependencies ? num_dependencies : 0, nodes) &&
           (dependencies || num_dependencies == 0));
    begin_capture(stream, mode, h_graph);
    stream.last_nodes = nodes;
}

void api::stream_end_capture(CUstream h_stream, CUgraph *ph_graph) {
    Stream &stream = find_stream(h_stream);
    expect(ph_graph);
    expect(stream.capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture->origin != &stream) {
        fail_capture(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread.number) {
        fail_capture(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    const CUresult result = capture->invalid        ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : !all_joined(*capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                    : CUDA_SUCCESS;
    end_capture(capture);
    *ph_graph = result == CUDA_SUCCESS ? capture->graph : nullptr;
    if (result != CUDA_SUCCESS) { // also a graph of the program's
        end_graph(sim().graphs.find(capture->graph));
        refuse(result);
    }
}

void api::stream_is_capturing(CUstream h_stream, CUstreamCaptureStatus *capture_status) {
    Stream &stream = find_stream(h_stream);
    expect(capture_status);
    if (stream.kind == Stream::Kind::legacy) { // asking does no harm
        const auto &beside = stream.context->streams;
        expect(std::none_of(beside.begin(), beside.end(),
                            [](const Stream *other) { return capture_beside_legacy(*other); }),
               CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    *capture_status = !stream.capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                      : stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void api::stream_get_capture_info_v1(CUstream h_stream, CUstreamCaptureStatus *capture_status_out,
                                     cuuint64_t *id_out) {
    stream_get_capture_info_v2(h_stream, capture_status_out, id_out, nullptr, nullptr, nullptr);
}

void api::stream_get_capture_info_v2(CUstream h_stream, CUstreamCaptureStatus *capture_status_out,
                                     cuuint64_t *id_out, CUgraph *graph_out,
                                     const CUgraphNode **dependencies_out,
                                     size_t *num_dependencies_out) {
    static thread_local std::vector<CUgraphNode> dependencies;
    stream_is_capturing(h_stream, capture_status_out);
    if (*capture_status_out != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return;
    }
    const Stream &stream = find_stream(h_stream);
    dependencies.clear();
    for (const Node *node : stream.last_nodes) {
        dependencies.push_back(node->handle);
    }
    const auto tell = [](auto *where, auto value) {
        if (where) {
            *where = value;
        }
    };
    tell(id_out, stream.capture->id);
    tell(graph_out, stream.capture->graph);
    tell(dependencies_out, static_cast<const CUgraphNode *>(dependencies.data()));
    tell(num_dependencies_out, dependencies.size());
}

void api::stream_get_capture_info_v3(CUstream h_stream, CUstreamCaptureStatus *capture_status_out,
                                     cuuint64_t *id_out, CUgraph *graph_out,
                                     const CUgraphNode **dependencies_out,
                                     const CUgraphEdgeData **edge_data_out,
                                     size_t *num_dependencies_out) {
    if (edge_data_out) {
        *edge_data_out = nullptr;
    }
    stream_get_capture_info_v2(h_stream, capture_status_out, id_out, graph_out, dependencies_out,
                               num_dependencies_out);
}

void api::stream_update_capture_dependencies(CUstream h_stream, CUgraphNode *dependencies,
                                             size_t num_dependencies, unsigned int flags) {
    Stream &stream = find_stream(h_stream);
    expect(stream.capture && !stream.capture->invalid, CUDA_ERROR_ILLEGAL_STATE);
    std::vector<Node *> nodes;
    for (size_t i = 0; i < num_dependencies; ++i) {
        nodes.push_back(sim().nodes.find(dependencies[i]));
        expect(nodes.back());
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        stream.last_nodes.clear();
    }
    add_last_nodes(stream, nodes);
}

void api::stream_update_capture_dependencies_v2(CUstream h_stream, CUgraphNode *dependencies,
                                                const CUgraphEdgeData *, size_t num_dependencies,
                                                unsigned int flags) {
    stream_update_capture_dependencies(h_stream, dependencies, num_dependencies, flags);
}

void api::thread_exchange_stream_capture_mode(CUstreamCaptureMode *mode) {
    expect(mode && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    std::swap(*mode, this_thread.mode);
}

} // namespace simcuda
