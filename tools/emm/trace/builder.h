#pragma once

#include "problem.h"
#include "trace/trace.h"

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

namespace emm::tool {

// One line of a trace file.
struct Row {
    static constexpr uint64_t unordered = ~uint64_t(0); // as `stream`: no stream
    uint64_t time = 0;                                  // microseconds
    uint64_t thread = 0;
    uint64_t stream = 0;
    Op op = Op::mark;
    int64_t id = 0;
    uint64_t size = 0;
    Drop drop = Drop::none; // of a free
};

// A row that breaks the rules of the format: "expected X, found Y".
class Malformed : public std::runtime_error {
public:
    Malformed(std::string expected_, std::string got_)
        : std::runtime_error("expected " + expected_ + ", found " + got_),
          expected(std::move(expected_)), got(std::move(got_)) {}
    const std::string expected, got;
};

// A file with wrong content: exit status 2. `place` says where, as in "line 3", and may be empty.
Failure bad_file(const std::string &name, const std::string &place, const Malformed &malformed);

// Makes a trace from its rows, and refuses rows that could not come from a program: time that goes
// back, a block freed twice, freed with another size or never allocated, and the like.
class TraceBuilder {
public:
    void add(const Row &row);
    bool is_empty() const { return trace_.events.empty(); }
    Trace finish(std::string name);

private:
    struct Live {
        uint32_t block;
        uint64_t size;
    };

    uint32_t allocated(const Row &row);
    uint32_t freed(const Row &row);
    void section(const Row &row);

    Trace trace_;
    uint64_t time_ = 0;
    uint64_t live_bytes_ = 0;
    uint32_t depth_ = 0; // of deferred sections
    std::unordered_map<int64_t, Live> live_;
    std::unordered_set<int64_t> seen_;
    std::unordered_map<uint64_t, uint32_t> threads_, streams_;
};

} // namespace emm::tool
