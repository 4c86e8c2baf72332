#pragma once

#include "clock.h"
#include "memory.h"
#include "schedule.h"

#include <cuda.h>
#include <functional>
#include <memory>
#include <vector>

namespace simcuda {

struct Capture;
struct Context;
struct Node;

constexpr int greatest_stream_priority = -5;

struct Stream {
    enum class Kind { user, legacy, per_thread };
    CUstream handle = nullptr;
    Kind kind = Kind::user;
    uint64_t id = 0;
    Context *context = nullptr;
    unsigned flags = 0;
    int priority = 0;

    uint32_t line = 0; // its line of work in every clock
    uint64_t time = 0; // the position on that line
    Clock clock;       // the work before its next piece of work
    Clock ended;       // for a programmatic launch: the work that has ended before it begins
    OpRef tail;

    std::shared_ptr<Capture> capture; // set during a capture
    std::vector<Node *> last_nodes;   // the predecessors of its next node

    bool blocking() const; // whether the stream and the legacy stream wait for each other
    void follow(const Clock &earlier);
};

// A use of memory by a piece of work.
struct Use {
    Span span;
    bool write;
};

// A piece of work, once its addresses are known.
struct Task {
    std::function<void()> run;
    bool outside = false;
    std::vector<Use> uses;
    bool kernel = false;
    bool programmatic = false; // the work may begin before the end of the kernel before it
    Schedule::Duration duration = {};
};

// Makes the task. Called when the work is put on a stream, and at each launch of a graph that
// captured the work.
using Bind = std::function<void(Task &ret_task)>;

// The stream that a handle names: the legacy stream, the thread's own, or a created one.
Stream &find_stream(CUstream handle);

Stream *make_stream(Context &context, Stream::Kind kind, unsigned flags, int priority);
void end_stream(Stream *stream);

// Puts work on the stream, or into the graph that it captures.
void enqueue(Stream &stream, const Bind &bind);

// The same without regard to captures, and after `more` as well.
OpRef enqueue_task(Stream &stream, Task task, const std::vector<OpRef> &more = {});

// Makes the stream's next work wait.
void wait_on_stream(Stream &stream, const OpRef &op, const Clock &clock);

// The clock of all work that comes before the next work of this stream.
std::vector<OpRef> predecessors(Stream &stream);

// Records the uses of a line of work, and reports races. See Shadow::use for the clocks.
void check_uses(const std::vector<Use> &uses, const Stream &stream, uint32_t line, uint64_t time,
                const Clock &clock, const Clock &begun);

// Waits until the stream's present work is done. The host then knows that it is.
void wait_for(Stream &stream);

struct Event {
    CUevent handle = nullptr;
    Context *context = nullptr;
    unsigned flags = 0;
    OpRef op; // of the latest record
    Clock clock;
    std::shared_ptr<Capture> capture; // recorded in a capture: the event stands for these nodes
    std::vector<Node *> nodes;
};

Event &find_event(CUevent handle);

void enqueue_nothing(CUstream stream); // takes its place in the order

} // namespace simcuda
