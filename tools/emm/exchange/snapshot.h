#pragma once

#include "exchange/conversion.h"
#include "exchange/pickle.h"

#include <string>

namespace emm::tool {

// A memory snapshot of PyTorch: torch.cuda.memory._snapshot() as a pickle, as _dump_snapshot()
// writes it. It has the latest events, up to the size of its ring, and the blocks that are live in
// the end.
class Snapshot : public Recording {
public:
    // `name` is for messages. `with_stacks`: call sites are kept, which take memory. Throws
    // Failure.
    Snapshot(const Pickle::Source &source, std::string name, std::optional<uint64_t> device,
             bool with_stacks = false);

    // The snapshot's figures for PyTorch's segments: how often PyTorch took one from the driver,
    // and gave one back.
    struct Segments {
        uint64_t taken = 0, given_back = 0;
        uint64_t before = 0; // bytes, before the first event
        bool is_told = false;
    };
    Segments segments_told() const;

    void visit(const Visit &visit) override;
    uint64_t device() const override { return device_; }
    std::vector<RecordedBlock> live_in_the_end() const override;
    const CallSites &sites() const override { return sites_; }
    const char *kind() const override { return "PyTorch snapshot"; }

private:
    std::vector<uint64_t> devices() const;
    const std::vector<PickleValue> *list_of(const PickleValue &dictionary, uint8_t name) const;
    const PickleValue *segments() const;
    const std::vector<PickleValue> *events() const;
    void add_blocks(const PickleValue &segment, size_t &visited,
                    std::vector<RecordedBlock> &blocks) const;
    uint32_t site_of(const PickleValue &holder) const;
    uint32_t site_of_block(const PickleValue &block) const;
    std::string location_of(const std::vector<PickleValue> &frames) const;
    Segments segments_of_events() const;
    uint64_t growth_of(const PickleValue &event) const;
    void visit_event(const PickleValue &event, RecordedEvent &totals, const Visit &visit) const;
    uint64_t number(const PickleValue &dictionary, uint8_t name) const;
    uint64_t number_or(const PickleValue &dictionary, uint8_t name, uint64_t otherwise) const;

    const std::string name_;
    Pickle pickle_;
    uint64_t device_ = 0;
    mutable CallSites sites_;
    mutable std::unordered_map<uint64_t, uint32_t> site_numbers_; // by the list of frames
    bool has_requests_ = false; // otherwise only completed frees are there
};

} // namespace emm::tool
