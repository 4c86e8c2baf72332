#include "changed_options.h"

namespace faults {

// A lower max has idle memory go back.
void change_options(Run &run) {
    emm_context *const of = run.context();
    const auto set = [of](const char *max) {
        const emm_status status = emm_context_set_option(of, "max", max);
        return status == EMM_E_NOT_SUPPORTED ? EMM_OK : status;
    };
    run.call("set_option", [&] { return set(nullptr); }); // a pass before may have failed
    for (const size_t size : {size_t(3000), mib, 20 * mib, 30 * mib}) {
        run.alloc(size, run.world().known());
    }
    run.free_latest(2);
    run.call("set_option", [&] { return set("40MiB"); });
    run.alloc(10 * mib, run.world().known());
    run.free_all();
    run.call("set_option", [&] { return set(nullptr); });
    run.alloc(50 * mib, run.world().known());
    run.free_all();
}

} // namespace faults
