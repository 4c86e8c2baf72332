// Memory that graphs allocate: its owner between launches, and after the graph's end.
#pragma once

#include "graph.h"
#include "memory.h"

namespace simcuda {

// Memory of a graph stays where it is until the graph can no longer be launched. NULL: no memory.
Region *take_for_graph(Graph &graph, Device &device, uint64_t size);

// Work that does not change a region, and is ordered with all work that does.
Bind bind_write(const Region &region);

// Whether the graph allocates or frees: then it has one executable graph at a time, and no clone.
bool has_memory_nodes(const Body &body);

// Whether the graph frees memory of its own: no update takes such a free over.
bool frees_own(const Body &body);

// has_live: whether the program still has memory that the last launch left. can_free: whether the
// program has all memory that a launch would free.
bool has_live(const Body &body);
bool can_free(const Body &body);

// Called when a launch has been enqueued: notes the memory that it allocates and frees.
void graph_memory_launched(const Body &body, Stream &stream);

// A free on a stream that captures becomes part of that graph. False: the graph frees the memory
// already.
bool free_in_graph(Graph &graph, Region &region);

// The program has freed the memory on the stream, or waited for its work (NULL). False: the program
// has not got the memory.
bool free_graph_memory(Region &region, Stream *stream);

// The graph is gone, and its launches are over. Memory that the program still has stays.
void end_graph_memory(const Body &body);

} // namespace simcuda
