// Memory that graphs allocate: whose it is between their launches, and after their end.
#pragma once

#include "graph.h"
#include "memory.h"

namespace simcuda {

// Memory of a graph stays where it is until the graph can no longer be launched. NULL: there is
// none.
Region *take_for_graph(Graph &graph, Device &device, uint64_t size);

// Work that does nothing with a region, and is ordered with all that does.
Bind bind_write(const Region &region);

// Whether it allocates or frees: then it has one executable graph at a time, and no clone.
bool has_memory_nodes(const Body &body);

// Whether it frees memory of its own: no update takes that over.
bool frees_own(const Body &body);

// Whether the program still has what the last launch left; and whether it has all that a launch
// would free.
bool has_live(const Body &body);
bool can_free(const Body &body);

// A launch has been enqueued, which allocates and frees.
void graph_memory_launched(const Body &body, Stream &stream);

// A free on a stream that captures becomes part of that graph. False: it has one already.
bool free_in_graph(Graph &graph, Region &region);

// The program has freed it on the stream, or waited for its work (NULL). False: it has not got it.
bool free_graph_memory(Region &region, Stream *stream);

// The graph is gone, and its launches are over: what the program still has stays.
void end_graph_memory(const Body &body);

} // namespace simcuda
