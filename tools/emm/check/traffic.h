#pragma once

#include "check/hosted.h"

#include <cstddef>
#include <map>
#include <string>

namespace emm::tool::check {

// Counts the bytes that this process allocates and frees by the calls that must succeed.
void count_allocated(size_t size);
void count_freed(size_t size);

// For a failure with out of memory: a hint, if the suite had freed most of the device by then.
std::string why_out_of_memory();

// Skips the case if a request failed for lack of memory, and a limit of the plugin leaves fewer
// bytes in all, `total`, than the cases need.
void skip_below_limit(emm_status status, size_t total);

// Live blocks, each with its own mark: no two may overlap, and no mark may change.
class LiveSet {
public:
    explicit LiveSet(const Hosted &hosted, emm_stream stream = EMM_STREAM_LEGACY)
        : hosted_(hosted), stream_(stream) {}

    size_t count() const { return blocks_.size(); }
    void add(size_t size);
    void remove(size_t index);
    void check() const;
    void clear();

private:
    struct Block {
        size_t size;
        uint8_t value;
    };
    using Blocks = std::map<emm_deviceptr, Block>;
    void check(const Blocks::value_type &block) const;

    const Hosted &hosted_;
    emm_stream stream_;
    uint8_t next_ = 0;
    Blocks blocks_;
};

} // namespace emm::tool::check
