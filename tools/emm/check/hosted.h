#pragma once

#include "check/case.h"
#include "check/gpu.h"

#include <emm/emm.h>

namespace emm::tool::check {

// The plugin as an application meets it: through libemm, in one context, which is current on the
// thread that makes this object.
class Hosted {
public:
    explicit Hosted(const CheckedPlugin &plugin, int device = 0);
    Hosted(const CheckedPlugin &plugin, CUcontext cuda); // made current

    emm_context *get() const { return context_; }
    CUcontext cuda() const { return cuda_; }

    // Calls that must succeed.
    emm_deviceptr alloc(size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    void free(emm_deviceptr ptr, size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    // Called after a request that may fail, unlike alloc().
    void skip_if_limited(emm_status status) const;
    void enlist(const OwnedStream &owned) const; // registers it
    void retire(OwnedStream &owned) const;       // unregisters and destroys it
    emm_stats stats() const;
    uint64_t capabilities() const;

private:
    emm_context *context_ = nullptr;
    CUcontext cuda_ = nullptr;
};

// Checks a status that must be a success; `what` describes the call.
void must(emm_status status, const char *what);

// With all work done and nothing live, freed memory has to come back to the driver. The calls in
// between let a manager look for completed work.
void expect_all_back(const Hosted &hosted, uint64_t idle, const std::string &what);

// Puts the plugin in force, unless it is already.
void choose(const CheckedPlugin &plugin);

} // namespace emm::tool::check
