#pragma once

#include "check/case.h"
#include "check/gpu.h"

#include <emm/emm.h>

namespace emm::tool::check {

// The plugin as an application meets it: through libemm, in one context, which is current on the
// thread that makes this.
class Hosted {
public:
    explicit Hosted(const Subject &subject, int device = 0);
    Hosted(const Subject &subject, CUcontext cuda); // made current

    emm_context *get() const { return context_; }
    CUcontext cuda() const { return cuda_; }

    // What must succeed.
    emm_deviceptr alloc(size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    void free(emm_deviceptr ptr, size_t size, emm_stream stream = EMM_STREAM_UNORDERED) const;
    void enlist(const Lane &lane) const; // registers the stream
    void retire(Lane &lane) const;       // and its end
    emm_stats stats() const;
    uint64_t capabilities() const;

private:
    emm_context *context_ = nullptr;
    CUcontext cuda_ = nullptr;
};

// What must succeed, and its description if it does not.
void must(emm_status status, const char *what);

// With all work done and nothing live: freed memory has to come back to the driver. A manager may
// first look for what is done in the calls in between.
void expect_all_back(const Hosted &hosted, uint64_t idle, const std::string &what);

// Puts the plugin in force, if that has not been done.
void choose(const Subject &subject);

} // namespace emm::tool::check
