#include "pools.h"

namespace faults {
namespace {

emm_stats stats_of(emm_context *context) {
    auto stats = sized<emm_stats>();
    emm_get_stats(context, &stats);
    return stats;
}

// A failing driver may have failed to take host memory back, too.
void left_unpaused(Run &run, const emm_stats &before) {
    const bool lacked_memory = emm_last_error()->driver_result == 0;
    const emm_stats now = stats_of(run.context());
    if (now.paused_bytes != 0) {
        run.complain("context_pause failed and has paused " + std::to_string(now.paused_bytes));
    }
    if (lacked_memory && now.host_reserved_bytes != before.host_reserved_bytes) {
        run.complain("context_pause failed and has kept " +
                     std::to_string(now.host_reserved_bytes) + " bytes of host memory");
    }
}

} // namespace

void pools(Run &run) {
    emm_context *const of = run.context(), *pool = nullptr;
    if (!run.call("context_named", [&] { return emm_context_named(of, "pool", "", &pool); })) {
        return run.left_alone<emm_context *>("context_named", pool, nullptr);
    }
    run.undo_later("context_retire", [=] { return emm_context_retire(pool); });
    run.set_context(pool);
    run.alloc(5000, run.world().known());
    run.hostalloc(5000, EMM_HOST_MAPPED);
    run.free_all();
    run.set_context(of);
}

// A pool that moves memory then has its pieces at several addresses, also of different ranges.
void spread_places(Run &run) {
    const emm_stream streams[] = {emm_stream(run.world().known()), emm_stream(run.world().other())};
    for (int i = 0; i < 8; i++) {
        run.alloc(2 * mib, streams[i / 4]);
    }
    run.free_every_second();
    run.alloc(8 * mib, streams[0]);
    run.free_latest(1);
    run.own(CU(cuStreamSynchronize)(run.world().known()) == CUDA_SUCCESS &&
                CU(cuStreamSynchronize)(run.world().other()) == CUDA_SUCCESS,
            "waiting");
    run.alloc(4 * mib, streams[1]);
    run.alloc(mib, streams[0]);
    run.alloc(mib, streams[0]);
}

// All calls that end such places.
void places(Run &run) {
    emm_context *const of = run.context();
    spread_places(run);
    run.alloc(10 * mib, run.world().known());
    const auto if_supported = [](emm_status status) {
        return status == EMM_E_NOT_SUPPORTED ? EMM_OK : status;
    };
    size_t released = 0;
    if (run.call("context_pause", [&] {
            return if_supported(emm_context_pause(of, EMM_PAUSE_DISCARD, &released));
        })) {
        run.undo_later("context_resume", [=] { return if_supported(emm_context_resume(of, 0)); });
        run.free_latest(1);
    }
    run.free_all();
    run.call("trim", [&] { return emm_trim(of, 0, nullptr); });
    spread_places(run);
    run.free_all();
    run.call("context_reset", [&] { return emm_context_reset(of); });
}

void pause(Run &run) {
    emm_context *const of = run.context();
    for (const size_t size : {3 * mib, 3 * kib}) {
        run.alloc(size, run.world().known());
    }
    size_t released = 77;
    const emm_stats before = stats_of(of);
    if (!run.call("context_pause",
                  [&] { return emm_context_pause(of, EMM_PAUSE_KEEP, &released); })) {
        run.left_alone("context_pause", released, size_t(77));
        return left_unpaused(run, before);
    }
    run.undo_later("context_resume", [=] { return emm_context_resume(of, 0); });
    run.free_oldest();
    run.call("context_resume", [&] { return emm_context_resume(of, 0); });
    run.alloc(mib, run.world().known());
    run.free_all();
}

} // namespace faults
