#pragma once

#include "trace/event_log.h"
#include "trace/file.h"
#include "trace/trace.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emm::tool {

// The kinds of memory in an event log, in the order of their names there.
enum class Memory : uint8_t { device, pinned, registered, managed };

// The callers: texts by number. Number 0 is "", and stands for all texts beyond the limit, too.
class CallSites {
public:
    static constexpr size_t most = 1 << 16;

    uint32_t number_of(const std::string &text);
    const std::string &text(uint32_t number) const { return texts_[number]; }
    size_t size() const { return texts_.size(); }

private:
    std::vector<std::string> texts_ = {""};
    std::unordered_map<std::string, uint32_t> numbers_;
};

// A line of Python. In a snapshot without Python, it may be a function of C++.
struct PythonCall {
    std::string file, line, function;

    bool is_compiled() const; // by the name of its file
};

// path+0xoffset (function+0xoffset), in its parts; `function` is the offset if the text has no
// function. Behind it the calls of Python, the innermost first, as far as the log knows them, and
// the tags of the thread ("tag serve/decode").
struct CallSite {
    std::string file, function;
    std::vector<PythonCall> calls;
    std::string tag;
};
inline constexpr size_t most_calls = 64; // per text; outer calls are left off
CallSite parts_of(const std::string &text);

// The innermost call that is not in an installed package, the standard library or emm: a line of
// the program's own. If all are, the innermost of Python; NULL: no call.
const PythonCall *own_call(const CallSite &site);

// train.py:12 (step)
std::string text_of(const PythonCall &call);

struct LiveBlock {
    uint64_t number = 0; // of the allocation, from 0 on
    uint64_t device = 0, context = 0, address = 0, stream = 0, size = 0;
    Memory memory = Memory::device;
    uint32_t site = 0;
};

struct Moment {
    uint64_t time = 0;            // nanoseconds since the log was opened
    uint64_t free = 0, total = 0; // of the device, as the log tells
    uint32_t site = 0;
};

// Takes the events of a log. A block is freed once, by its free or by the event that drops all
// memory of its context.
class TimelineVisitor {
public:
    virtual ~TimelineVisitor() = default;
    virtual void allocated(const LiveBlock &block, const Moment &moment) = 0;
    virtual void freed(const LiveBlock &block, uint64_t stream, const Moment &moment) = 0;
    // The program did not free the block: a reset or the end of its context dropped it.
    virtual void dropped(const LiveBlock &block, Drop, const Moment &moment) {
        freed(block, block.stream, moment);
    }
    // An allocation of device memory.
    virtual void failed(const LogCall &call, const Moment &moment) = 0;
    // An event that concerns no block.
    virtual void other(const LogCall &, const Moment &) {}
};

// Goes through an event log, row by row. Throws Failure.
class Timeline {
public:
    // Called with the share of the log that has been read.
    using Report = std::function<void(double)>;

    Timeline(const Input &log, CallSites &sites, Report report)
        : log_(log), sites_(sites), report_(std::move(report)) {}

    // From the beginning.
    void visit(TimelineVisitor &visitor);

    // The blocks that are live after the last event, by number.
    std::vector<LiveBlock> live() const;

private:
    void add(std::string_view line, TimelineVisitor &visitor);
    void allocated(const LogCall &call, Memory memory, const Moment &moment,
                   TimelineVisitor &visitor);
    void freed(const LogCall &call, Memory memory, const Moment &moment, TimelineVisitor &visitor);
    void drop_all(const LogCall &call, Drop drop, const Moment &moment, TimelineVisitor &visitor);

    const Input &log_;
    CallSites &sites_;
    const Report report_;
    std::unordered_map<uint64_t, LiveBlock> live_; // by address and kind
    uint64_t allocations_ = 0;
};

} // namespace emm::tool
