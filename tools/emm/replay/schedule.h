#pragma once

#include "replay/player.h"
#include "trace/trace.h"

#include <functional>
#include <memory>
#include <vector>

namespace emm::tool {

struct Hooks {
    std::function<void()> middle;               // called once, in the middle of the trace
    std::function<void(uint16_t thread)> ended; // after each event, by its thread
};

// Plays every event on the thread that made it. In strict order events follow each other as in the
// file, and threads take turns; in free order only a free of another thread's block
// waits for that block. Throws what a thread has thrown, after all have ended.
void play_strictly(const Trace &trace, std::vector<std::unique_ptr<Player>> &players,
                   const Session &session, const Hooks &hooks);
void play_freely(const Trace &trace, std::vector<std::unique_ptr<Player>> &players,
                 Session &session, const Hooks &hooks);

} // namespace emm::tool
