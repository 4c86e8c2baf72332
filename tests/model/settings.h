#pragma once

#include <cstddef>

namespace model {

// The settings of the command line, as NAME=NUMBER.
struct Settings {
    size_t steps = 2000; // of a round
    size_t rounds = 4;   // each with contexts and a model of its own
    size_t seconds = 0;  // if not 0: as many rounds as fit into that time
    size_t seed = 1;     // of the first round
    size_t threads = 3;  // threads that take turns
    size_t contexts = 3; // on the devices in turn
    size_t live = 40;    // allocations at most
    size_t tight = 0;    // 1: requests may fail for want of memory
    size_t most = 0;     // the MiB of the plugin's `max`; 0: without
    size_t judged = 4;   // the statistics, after one of so many steps
    size_t faults = 0;   // inside one of so many calls of emm, a driver call fails; 0: never
    size_t in_turn = 0;  // 1: each driver call inside each of a round's calls fails, one a round
    size_t fail_call = 0, fail_nth = 0; // the driver call that does; 0: none
    size_t pressure = 1;                // the program gives memory back on request
    size_t last = 40;                   // steps that a failure prints
    size_t chosen = 0;                  // 1: only the steps whose numbers come on standard input

    // 0: done without, to find out which of them a failure needs.
    size_t streams = 1;   // replaced, registered and retired streams
    size_t unordered = 1; // allocations and frees without a stream
    size_t abroad = 1;    // frees on another stream, and uses there
    size_t wrong = 1;     // calls that must be refused
    size_t sections = 1;  // deferred ones
    size_t trims = 1;
    size_t ends = 1; // threads that end
    size_t handles = 1;
    size_t graphs = 1;
    size_t joins = 1; // streams that join a capture
    size_t resets = 1;
    size_t lives = 1; // contexts that end
    size_t pools = 1; // with names
    size_t pauses = 1;
    size_t peaks = 1;  // resets of peaks
    size_t beside = 1; // calls at the same time
    size_t forks = 1;
    size_t silent = 1; // unannounced captures
    size_t peers = 1;  // other processes
    size_t host = 1;   // pinned, registered and managed memory
};

} // namespace model
