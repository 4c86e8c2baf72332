#pragma once

#include <string>

namespace emm::tool {

struct EventsOptions {
    std::string log; // a file
    bool json = false;
};

// Completes an event log whose program was killed, and tells what is in it. Returns the exit
// status; throws Failure.
int run_events(const EventsOptions &options);

} // namespace emm::tool
