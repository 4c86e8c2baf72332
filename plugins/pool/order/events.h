// Questions to the driver about work: recording events, and querying which are complete. No lock is
// held.
#pragma once

#include "cuda/served_context.h"

namespace emm::pool {

// Waits for all work of the context. cuMemFree does so and leaves captures valid, which
// cuCtxSynchronize does not.
CUresult await_work_of(const Driver &driver, CUcontext context, uint64_t id);

class Events {
public:
    explicit Events(const ServedContext &context) : context_(context), driver_(context.driver) {}

    // A driver older than 12.5 has no event for all work of a context, so that work is waited for
    // instead.
    bool has_context_events() const { return bool(driver_.record_context_event); }

    // If the event is NULL, these make it.
    CUresult record(CUevent &event, CUstream stream) const;
    CUresult record_on_context(CUevent &event) const;
    void destroy(CUevent event) const { driver_.cuEventDestroy(event); }

    CUresult query(CUevent event) const;
    CUresult wait(CUevent event) const;
    CUresult query_stream(CUstream stream) const;
    bool can_query_streams() const { return bool(driver_.cuStreamQuery); }
    CUresult wait_on_stream(CUstream stream, CUevent event) const; // the stream waits

    CUresult synchronize() const; // waits for the context, and invalidates captures

    // The state of a live stream.
    CUresult is_capturing(CUstream stream, bool &ret_capturing) const;
    // Whether the handle means the stream of that id, and the stream does not capture.
    bool is_same_and_not_capturing(CUstream stream, uint64_t id) const;

private:
    const ServedContext &context_;
    const Driver &driver_;
};

} // namespace emm::pool
