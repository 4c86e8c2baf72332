#include "core/lifecycle/reset.h"

#include "core/account/watch.h"
#include "core/handles/handle.h"
#include "core/lifecycle/manager.h"
#include "core/lifecycle/registry.h"
#include "core/lifecycle/retire.h"
#include "core/record/context.h"
#include "observe/error.h"

namespace emm::core {
namespace {

emm_status reset_unwatched(emm_context &context) {
    EMM_TRY(expect_outside("reset"));
    const OwnerGuard guard(context.manager_lock);
    if (!guard.owns()) {
        return observe::fail(EMM_E_REENTERED, 0, "the plugin reset the context that it serves");
    }
    if (is_unserved(context)) {
        return begin_serving(context); // an earlier reset could not; there is nothing to drop
    }
    EMM_TRY(admit_alive(context));
    const Closed closed(context.epoch);
    return reset_manager(context);
}

} // namespace

emm_status reset(emm_context &context, const void *caller) {
    const emm_status status = watched(context, observe::EventType::reset, caller,
                                      [&] { return reset_unwatched(context); });
    finalize_dropped(context);
    return status;
}

} // namespace emm::core
