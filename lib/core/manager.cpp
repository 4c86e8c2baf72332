#include "core/manager.h"

#include "core/call.h"
#include "core/host.h"
#include "core/ipc/exports.h"
#include "core/ipc/imports.h"
#include "observe/error.h"
#include "observe/log.h"

namespace emm::core {
namespace {

// The plugin has just failed at `stage`; its own words go into the middle of ours.
emm_status refused(const emm_context &context, emm_status status, const char *stage) {
    const loader::Plugin &plugin = *context.selection->plugin;
    observe::ErrorDetail detail = observe::last_detail();
    const std::string said = detail.text;
    detail.code = status;
    detail.stage = stage;
    detail.path = plugin.path;
    detail.text = "plugin " + (plugin.path.empty() ? plugin.name : plugin.path) + ": " + stage +
                  " failed for " + name_of(context) + ": " + said;
    return observe::fail(std::move(detail));
}

emm_status call_create(emm_context &context, emm_manager *&ret_manager) {
    const emm_plugin &table = context.selection->plugin->table;
    const emm_context_info info = info_of(context);
    const driver::Current current(context.driver, context.cuda_context, context.id);
    if (current.result() != CUDA_SUCCESS) {
        return driver::fail(current.result(), "making the context current");
    }
    observe::log(EMM_LOG_DEBUG, "plugin " + context.selection->plugin->name +
                                    ": calling create for " + name_of(context));
    try {
        return conclude(
            context,
            table.create(&host(), &info, context.selection->option_texts.data(), &ret_manager),
            "create");
    } catch (...) {
        return conclude_exception(context, "create");
    }
}

} // namespace

emm_status create_manager(emm_context &context, const loader::Selection &selection) {
    context.selection = &selection;
    emm_manager *manager = nullptr;
    emm_status status = call_create(context, manager);
    if (status >= EMM_OK && !manager) {
        status = observe::fail(EMM_E_PLUGIN_FAILED, 0, "it answered success and made no manager");
    }
    if (status < EMM_OK) {
        return refused(context, status, "create");
    }
    context.manager = manager;
    status = EMM_CALL(context, initialize);
    if (status < EMM_OK) {
        {
            const observe::Preserved said;
            EMM_CALL(context, destroy);
            context.manager = nullptr;
        }
        return refused(context, status, "initialize");
    }
    context.memalloc = selection.plugin->table.memalloc;
    context.memfree = selection.plugin->table.memfree;
    const bool pins = !selection.plugin->defaults(loader::Slot::memhostalloc);
    context.memhostalloc = pins ? selection.plugin->table.memhostalloc : nullptr;
    context.memhostfree = pins ? selection.plugin->table.memhostfree : nullptr;
    return EMM_OK;
}

void destroy_manager(emm_context &context) noexcept {
    ipc::end_exports(context);
    ipc::close_imports(context);
    flush(context);
    if (context.manager) {
        const emm_status status = EMM_CALL(context, destroy);
        if (status < EMM_OK) {
            observe::log(EMM_LOG_WARN, observe::last_error()->text);
        }
        context.manager = nullptr;
    }
    flush(context); // destroy may have queued frees
    context.defaults.release_all();
}

emm_status reset_manager(emm_context &context) {
    const loader::Selection &selection = *context.selection;
    if (selection.plugin->defaults(loader::Slot::reset)) {
        destroy_manager(context);
        return create_manager(context, selection);
    }
    ipc::end_exports(context);
    ipc::close_imports(context);
    flush(context);
    const emm_status status = EMM_CALL(context, reset);
    context.defaults.release_all();
    return status;
}

} // namespace emm::core
