#pragma once

#include "stream.h"

#include <cuda.h>
#include <map>
#include <memory>
#include <vector>

namespace simcuda {

struct UserObject {
    CUuserObject handle = nullptr;
    void *argument = nullptr;
    CUhostFn destroy = nullptr;
    unsigned references = 0;
    Clock runs; // launches of graphs that have given back their references
};

void release(UserObject *object, unsigned count);

struct Node {
    CUgraphNode handle = nullptr;
    const char *call = ""; // the entry that was captured
    Bind bind;             // empty for a node that only orders
    std::vector<Node *> before;
};

// The nodes of a graph and what it keeps alive. A graph, its executables and their launches in
// flight share it.
struct Body {
    std::vector<std::unique_ptr<Node>> nodes; // each behind its predecessors
    std::vector<CUdeviceptr> memory;          // allocated by captured calls
    std::vector<CUdeviceptr> frees;           // memory of other graphs, freed by captured calls
    ~Body();
};

// References to user objects, given back together, after the launches of their owners.
struct Held {
    std::map<UserObject *, unsigned> objects;
    Clock runs;
    ~Held();
};

std::shared_ptr<Held> hold_too(const Held &held); // the same references, for another owner

struct Graph {
    CUgraph handle = nullptr;
    std::shared_ptr<Body> body = std::make_shared<Body>();
    std::shared_ptr<Held> held = std::make_shared<Held>();
};

struct Executable {
    CUgraphExec handle = nullptr;
    std::shared_ptr<Body> body;
    std::shared_ptr<Held> held;
    bool frees_at_launch = false; // the memory that the last launch left
    OpRef last;                   // the end of the graph's latest launch
    Clock clock;
};

Graph &find_graph(CUgraph handle);
Executable &find_executable(CUgraphExec handle);
Graph *make_graph();
void end_graph(Graph *graph);
// False: one of the handles is not a node of this graph.
bool find_nodes(const Graph &graph, const CUgraphNode *handles, size_t count,
                std::vector<Node *> &ret_nodes);
Node *append_node(Graph &graph, const char *call, const Bind &bind, std::vector<Node *> before);

} // namespace simcuda
