#include "sharing/sharing.h"

#include "sharing/exports.h"
#include "sharing/imports.h"
#include "sharing/served_exports.h"

namespace emm::sharing {
namespace {

void end(emm_context &context) noexcept {
    end_exports(context);
    withdraw_exports(context);
    close_imports(context);
}

} // namespace

constinit const core::Sharing for_core = {&end, &set_imports_access, &get_legacy_handle,
                                          &serve_export, &withdraw_export};

} // namespace emm::sharing
