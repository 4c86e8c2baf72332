#pragma once

#include "exchange/conversion.h"

#include <functional>
#include <string>
#include <vector>

namespace emm::tool {

// The trace of PyTorch's profiler (Kineto) in the Chrome format, with profile_memory=True: its
// instant events "[memory]" about a GPU. Only these are held in memory.
class KinetoTrace : public Recording {
public:
    // Up to `most` bytes; 0 at the end.
    using Source = std::function<size_t(char *into, size_t most)>;

    struct MemoryEvent {
        double time;
        uint64_t thread, address, size;
        uint64_t total; // allocated on the device afterwards; 0: not told
        uint32_t device;
        bool is_free, has_address;
    };

    // `name` is for messages. Throws Failure.
    KinetoTrace(const Source &source, std::string name, std::optional<uint64_t> device);

    void visit(const Visit &visit) override;
    uint64_t device() const override { return device_; }
    uint64_t bytes_before() const override;
    bool is_matched_by_size() const override { return is_matched_by_size_; }
    const char *kind() const override { return "Kineto trace"; }

private:
    void match_by_size();

    std::vector<MemoryEvent> events_; // by time
    uint64_t device_ = 0;
    bool is_matched_by_size_ = false;
};

} // namespace emm::tool
