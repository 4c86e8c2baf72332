#pragma once

#include "replay/session.h"
#include "replay/toucher.h"
#include "trace/trace.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace emm::tool {

// Plays the events of one thread: calls emm, keeps how long each call took, and orders and touches
// memory outside that time.
class Player {
public:
    Player(Session &session, bool touch, size_t expected_events);
    ~Player();
    Player(const Player &) = delete;
    Player &operator=(const Player &) = delete;

    // `number` is the event's place in the trace, for messages.
    void play(const Event &event, size_t number);

    // Frees a block that the trace has left alive.
    void release_left(Block &block);

    void leave_section() { emm_defer_cleanup_end(session_.context()); }
    void finish();

    const std::vector<uint64_t> &ticks() const { return ticks_; }
    uint64_t failed() const { return failed_; }
    const std::string &first_failure() const { return first_failure_; }
    size_t first_failure_number() const { return first_failure_number_; }
    uint64_t mismatches() const { return toucher_ ? toucher_->mismatches() : 0; }

private:
    void allocate(const Event &event);
    void release(const Event &event);
    void order(uint16_t first, uint16_t second);
    void took(uint64_t began, emm_status status, const Event &event);

    Session &session_;
    std::unique_ptr<Toucher> toucher_;
    CUevent event_ = nullptr;
    std::vector<uint64_t> ticks_;
    uint64_t failed_ = 0;
    size_t number_ = 0;
    std::string first_failure_;
    size_t first_failure_number_ = 0;
};

struct Hooks {
    std::function<void(const Event &)> before;  // in strict order; may be empty
    std::function<void()> middle;               // called once, in the middle of the trace
    std::function<void(uint16_t thread)> ended; // after each event, by its thread
};

// Plays every event on the thread that made it. In strict order events follow each other as in the
// file, and threads take turns; in free order only a free of another thread's block waits for that
// block. Throws a thread's exception, after all threads have ended.
using Players = std::vector<std::unique_ptr<Player>>;
void play_strictly(const Trace &trace, Players &players, Session &session, const Hooks &hooks);
void play_freely(const Trace &trace, Players &players, Session &session, const Hooks &hooks);

} // namespace emm::tool
