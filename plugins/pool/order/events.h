// What is asked of the driver about work: to record events and to tell what is complete. No lock is
// held.
#pragma once

#include "cuda/served_context.h"

namespace emm::pool {

class Events {
public:
    explicit Events(const ServedContext &context) : context_(context), driver_(context.driver) {}

    // A driver older than 12.5 has no event for all work of a context, which is waited for instead.
    bool has_context_events() const { return bool(driver_.record_context_event); }

    // These make the event if there is none yet.
    CUresult record(CUevent &event, CUstream stream) const;
    CUresult record_on_context(CUevent &event) const;
    void destroy(CUevent event) const { driver_.cuEventDestroy(event); }

    CUresult query(CUevent event) const;
    CUresult wait(CUevent event) const;
    CUresult query_stream(CUstream stream) const;
    bool can_query_streams() const { return bool(driver_.cuStreamQuery); }
    CUresult wait_on_stream(CUstream stream, CUevent event) const; // the stream waits

    // The state of a stream that lives.
    CUresult is_capturing(CUstream stream, bool &ret_capturing) const;
    // Whether it is the stream of that id, which does not capture.
    bool is_still(CUstream stream, uint64_t id) const;

private:
    const ServedContext &context_;
    const Driver &driver_;
};

} // namespace emm::pool
