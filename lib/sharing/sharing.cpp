#include "sharing/sharing.h"

#include "sharing/exporter/exports.h"
#include "sharing/exporter/served_exports.h"
#include "sharing/importer/imports.h"

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
