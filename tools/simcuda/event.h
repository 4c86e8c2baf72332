#pragma once

#include "clock.h"
#include "schedule.h"

#include <cuda.h>
#include <memory>
#include <vector>

namespace simcuda {

struct Capture;
struct Context;
struct Node;

struct Event {
    CUevent handle = nullptr;
    Context *context = nullptr;
    unsigned flags = 0;
    OpRef op; // of the latest record
    Clock clock;
    std::shared_ptr<Capture> capture; // recorded in a capture: then it stands for these nodes
    std::vector<Node *> nodes;
};

CUresult find_event(CUevent handle, Event *&ret_event);

// Those of a context that ends. A program that goes on using one is told so, as no event made later
// has its handle.
void end_events(Context &context);

} // namespace simcuda
