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

// The events of a context that ends. Their handles are never reused, so a later use is reported.
void end_events(Context &context);

} // namespace simcuda
