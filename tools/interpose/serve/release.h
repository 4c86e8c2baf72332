// When an allocation fails, asks the program's caches of memory to give some back
// (EMM_RUN=release=...).
#pragma once

#include "caches.h"
#include "helper_thread.h"
#include "streams.h"

#include <memory>

namespace emm::run {

class Release {
public:
    // `caches`: which may be asked.
    Release(const Driver &driver, Streams &streams, Caches caches);

    // Asks the caches, after an allocation of so many bytes has failed in the context. True: they
    // have been asked, so another try may succeed. False also on the thread of emm pause and emm
    // resume, because a cache may wait for a call that is held. Throws std::bad_alloc.
    bool ask(emm_context *context, size_t bytes, Memory memory);

private:
    Caches caches_to_ask(emm_context *context, size_t bytes, Memory memory) const;
    void work(CUcontext context, Caches caches, Memory memory);
    static PyObject *at_end(PyObject *, PyObject *);

    const Driver &driver_;
    Streams &streams_;
    const Caches caches_;
    Python python_ = {};
    std::unique_ptr<HelperThread> thread_; // NULL: no caches, or no Python
    bool knows_end_ = false;               // the interpreter calls at_end; its lock guards this
};

} // namespace emm::run
