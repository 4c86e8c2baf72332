// The rules that hold for every plugin: which bytes belong to which allocation, and the figures of
// each context's statistics. The model knows neither emm nor the driver; it is told the requests
// and the answers.
#pragma once

#include <emm/plugin.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace model {

// The model's exception: a rule is broken.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Kind { device, pinned, registered, managed, opened };
const char *name_of(Kind kind);

// Bytes that must not be handed out: of a live allocation, or of one that was freed in a capture,
// whose graphs use it.
struct Range {
    uint64_t begin = 0, end = 0;
    size_t context = 0;
    Kind kind = Kind::device;
};

// The promises of a plugin beside the contract.
struct Promises {
    bool keeps_account = true;     // has statistics, and knows the sizes that were asked for
    bool exact_peak = false;       // peak_live_bytes is no upper bound, but the peak itself
    bool keeps_in_sections = true; // all memory
    uint64_t most = 0;             // reserved_bytes never exceed it; 0: no limit
    bool changes_max = false;      // of that limit, while it serves
    bool pauses = false;           // device memory
    bool resets_peaks = false;
    bool waits = false; // for a resume, if its option says so
};

// emm's figures for a device under a bound.
struct Account {
    uint64_t bound = 0; // 0: no bound
    uint64_t used = 0;
    uint64_t reserved = 0; // by managers, as their statistics tell
    uint64_t excess = 0;   // by which memory pools may be above

    void judge() const;

    // A request was refused whose memory comes from the driver in steps of `step` bytes.
    void judge_refusal(uint64_t size, uint64_t step) const;
};

class Model {
public:
    explicit Model(const Promises &promises) : promises_(promises) {}

    const Promises &promises() const { return promises_; }

    // --- requests, once they have been answered

    // `graph`: the one being captured, which may get memory that was freed in the same capture; 0:
    // none.
    void allocated(size_t context, Kind kind, uint64_t ptr, uint64_t size, size_t graph = 0);
    void freed(uint64_t ptr);
    void freed_in_capture(uint64_t ptr, size_t graph); // the graph's life has begun
    void failed(size_t context, bool more_than_once);  // a request for device memory
    // Threads have freed at the same time. Until the next judgement so many frees may be counted or
    // not, and the peak may be as high as if nothing had been freed meanwhile.
    void blurred(size_t context, uint64_t frees, uint64_t bytes);
    void asked(size_t context, uint64_t requests) { figures_[context].allocations += requests; }
    void lost_count_of_failures(size_t context) { figures_[context].any_failures = true; }

    // --- results of a capture: the graph, its clones and executable graphs

    void life_begins(size_t graph) { ++graphs_[graph].lives; }
    void life_ends(size_t graph);

    void reset(size_t context);
    void retired(size_t context);
    void peaks_reset(size_t context);
    void bounded(size_t context, uint64_t bytes) { figures_[context].bound = bytes; }
    void section_begins(size_t context) { ++figures_[context].sections; }
    void section_ends(size_t context);

    // --- questions

    const Range *live_around(uint64_t address) const; // NULL: no live allocation has it
    bool is_free(uint64_t begin, uint64_t end) const;
    bool is_empty(size_t context) const; // neither live nor held
    void judge(size_t context, const emm_stats &stats);

private:
    struct Figures {
        uint64_t live_bytes = 0, live_count = 0, peak = 0, host_bytes = 0;
        uint64_t allocations = 0, frees = 0, failures = 0;
        bool may_count_more_failures = false; // emm asks a plugin again
        bool any_failures = false;
        uint64_t more_frees = 0, higher_peak = 0;
        size_t sections = 0;
        uint64_t reserved_in_section = 0;
        uint64_t peak_reserved_told = 0;
        uint64_t bound = UINT64_MAX; // of reserved_bytes, since its last change
    };
    struct Graph {
        size_t lives = 0; // the graph, its clones and executable graphs
        std::vector<Range> held;
    };
    const Range *live_in(uint64_t begin, uint64_t end) const;
    const Range *held_in(uint64_t begin, uint64_t end, size_t but_for_graph) const;

    const Promises promises_;
    std::map<uint64_t, Range> live_; // by begin; no two overlap
    std::map<size_t, Graph> graphs_;
    std::map<size_t, Figures> figures_;
};

} // namespace model
