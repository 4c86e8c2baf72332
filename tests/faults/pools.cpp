#include "pools.h"

namespace faults {

void pools(Run &run) {
    emm_context *const of = run.context(), *pool = nullptr;
    if (!run.call("context_named", [&] { return emm_context_named(of, "pool", "", &pool); })) {
        return run.left_alone<emm_context *>("context_named", pool, nullptr);
    }
    run.owe("context_retire", [=] { return emm_context_retire(pool); });
    run.set_context(pool);
    run.alloc(5000, run.world().known());
    run.hostalloc(5000, EMM_HOST_MAPPED);
    run.free_all();
    run.set_context(of);
}

void pause(Run &run) {
    emm_context *const of = run.context();
    for (const size_t size : {3 * mib, 3 * kib}) {
        run.alloc(size, run.world().known());
    }
    size_t released = 77;
    if (!run.call("context_pause",
                  [&] { return emm_context_pause(of, EMM_PAUSE_KEEP, &released); })) {
        return run.left_alone("context_pause", released, size_t(77));
    }
    run.owe("context_resume", [=] { return emm_context_resume(of, 0); });
    run.free_oldest();
    run.call("context_resume", [&] { return emm_context_resume(of, 0); });
    run.alloc(mib, run.world().known());
    run.free_all();
}

} // namespace faults
