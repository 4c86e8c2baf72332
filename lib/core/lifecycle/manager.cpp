#include "core/lifecycle/lifecycle.h"

#include "core/memory/call.h"
#include "core/memory/default_memory.h"
#include "core/memory/recovery.h"
#include "core/record/context.h"
#include "core/reports/exit_statistics.h"
#include "driver/driver.h"
#include "driver/meter.h"
#include "observe/error.h"
#include "observe/log.h"
#include "observe/process.h"
#include "observe/running.h"
#include "observe/text.h"

#include <fmt/format.h>
#include <utility>

namespace emm::core {
namespace {

// Marks, for a scope, that the plugin works on the manager itself. The flag sends all calls for the
// context to the slow path, which refuses them: the plugin must not call emm from there.
// Announcements by users of other pools wait.
class Managing {
public:
    explicit Managing(emm_context &context)
        : announcing_(context.group.announcing), context_(context),
          outer_(std::exchange(this_thread.managing, &context)) {
        context.state.fetch_or(state_managing, std::memory_order_acq_rel);
    }
    ~Managing() {
        context_.state.fetch_and(~state_managing, std::memory_order_acq_rel);
        this_thread.managing = outer_;
    }
    Managing(const Managing &) = delete;
    Managing &operator=(const Managing &) = delete;

private:
    const OwnerGuard announcing_;
    emm_context &context_;
    const emm_context *const outer_;
};

// Describes a failure of the plugin or layer at `stage`; its own words go into the middle of the
// sentence.
emm_status refused(const emm_context &context, const loader::Plugin &plugin, emm_status status,
                   const char *stage) {
    observe::ErrorDetail detail = observe::last_detail();
    const std::string said = detail.text;
    detail.code = status;
    detail.stage = stage;
    detail.path = plugin.path;
    detail.text = fmt::format("{} {}: {} failed for {}: {}", plugin.kind(), plugin.file_or_name(),
                              stage, context, said);
    return observe::fail(std::move(detail));
}

// Members of a selection: the plugin at 0, then its layers upwards.
size_t member_count(const loader::Selection &selection) {
    return selection.layers.size() + 1;
}
const loader::Plugin &member(const loader::Selection &selection, size_t position) {
    const loader::Plugin &plugin = *selection.plugin;
    return plugin.members.empty() ? plugin : *plugin.members[position];
}
const char *const *texts_of(const loader::Selection &selection, size_t position) {
    return position == 0 ? selection.option_texts.data()
                         : selection.layers[position - 1].option_texts.data();
}

// A layer without the slot is not called.
template <bool comes_once = false, class Function>
emm_status call_member(emm_context &context, size_t position, loader::Slot slot,
                       Function emm_plugin::*function) noexcept {
    const loader::Plugin &plugin = member(*context.selection, position);
    return plugin.is_layer && plugin.defaults(slot)
               ? EMM_OK
               : call_of<comes_once>(context, plugin, context.managers.made[position], slot,
                                     function);
}

emm_context_info info_for(emm_context &context, size_t position) {
    emm_context_info info = info_of(context);
    if (position > 0) {
        info.below = &context.selection->plugin->below[position - 1];
        info.below_managers = context.managers.below[position - 1].data();
    }
    return info;
}

emm_status call_create(emm_context &context, size_t position, emm_manager *&ret_manager) {
    const loader::Plugin &plugin = member(*context.selection, position);
    const emm_context_info info = info_for(context, position);
    const driver::Current current(context.driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    observe::log(EMM_LOG_DEBUG, "{} {}: calling create for {}", plugin.kind(), plugin.name,
                 context);
    const observe::Running running(plugin.running_text(loader::Slot::create));
    try {
        return describe_failure(context, plugin,
                                plugin.table.create(&host(), &info,
                                                    texts_of(*context.selection, position),
                                                    &ret_manager),
                                "create");
    } catch (...) {
        return fail_of_exception(plugin, "create");
    }
}

// From now on, emm calls the slots that the plugin fills with this manager.
void add_manager(emm_context &context, size_t position, emm_manager *manager) {
    const loader::Plugin &plugin = member(*context.selection, position);
    Managers &managers = context.managers;
    managers.made.push_back(manager);
    for (size_t i = 0; i < managers.selves.size(); ++i) {
        const auto slot = static_cast<loader::Slot>(i);
        if (!plugin.defaults(slot)) {
            managers.selves[i] = manager;
        } else if (position == 0) {
            managers.selves[i] = context.defaults;
        }
    }
}

// Destroys from the outermost layer down to the plugin.
void destroy_members(emm_context &context) noexcept {
    std::vector<emm_manager *> &made = context.managers.made;
    for (; !made.empty(); made.pop_back()) {
        const emm_status status = call_member<true>(context, made.size() - 1, loader::Slot::destroy,
                                                    &emm_plugin::destroy);
        if (status < EMM_OK) {
            observe::log(EMM_LOG_WARN, observe::last_error()->text);
        }
    }
    context.managers.below.clear();
    context.manager = nullptr;
}

emm_status give_up(emm_context &context, const loader::Plugin &plugin, emm_status status,
                   const char *stage) {
    {
        const observe::Preserved said;
        destroy_members(context);
    }
    return refused(context, plugin, status, stage);
}

// Calls create and initialize of the plugin or of one layer. Everything below is ready by then.
emm_status make_member(emm_context &context, size_t position) {
    const loader::Plugin &plugin = member(*context.selection, position);
    if (position > 0) {
        context.managers.below.push_back(context.managers.selves);
    }
    emm_manager *manager = nullptr;
    emm_status status = call_create(context, position, manager);
    if (status >= EMM_OK && !manager) {
        status = observe::fail(EMM_E_PLUGIN_FAILED, 0, "it returned success without a manager");
    }
    if (status < EMM_OK) {
        return give_up(context, plugin, status, "create");
    }
    add_manager(context, position, manager);
    status = call_member(context, position, loader::Slot::initialize, &emm_plugin::initialize);
    return status < EMM_OK ? give_up(context, plugin, status, "initialize") : EMM_OK;
}

// A reset of a plugin without a `reset` slot makes a new manager. This replays options, peers and
// sections to it. A new pool also learns of streams and captures.
emm_status replay_announced(emm_context &context) {
    for (const auto &[key, text] : context.announced.options()) {
        EMM_TRY(EMM_CALL(context, set_option, key.c_str(), text ? text->c_str() : nullptr));
    }
    for (uint64_t left = context.pending.sections(); left > 0; --left) {
        EMM_TRY(EMM_CALL(context, defer_cleanup, 1u));
    }
    for (const auto &[device, flags] : context.announced.accesses()) {
        EMM_TRY(EMM_CALL(context, set_access, device, flags));
    }
    for (const auto &[notice, stream] : context.group.announced.notices()) {
        EMM_TRY(EMM_CALL(context, stream_notice, stream, notice));
    }
    return EMM_OK;
}

emm_status call_reset(emm_context &context) noexcept {
    const Managing managing(context);
    for (size_t i = context.managers.made.size(); i-- > 0;) {
        EMM_TRY(call_member(context, i, loader::Slot::reset, &emm_plugin::reset));
    }
    return EMM_OK;
}

// Tells a new manager of open sections, streams, captures, peers and changed options.
emm_status make_ready(emm_context &context) noexcept {
    return observe::with_memory("no host memory to replay the context's state to its new manager",
                                [&] { return replay_announced(context); });
}

} // namespace

emm_status create_manager(emm_context &context, const loader::Selection &selection) {
    make_defaults(context);
    context.selection = &selection;
    const Managing managing(context);
    const loader::Plugin &plugin = *selection.plugin;
    Managers &managers = context.managers;
    managers.made.reserve(member_count(selection));
    managers.below.reserve(selection.layers.size());
    for (size_t i = 0; i < member_count(selection); ++i) {
        EMM_TRY(make_member(context, i));
    }
    const emm_status status = make_ready(context);
    if (status < EMM_OK) {
        return give_up(context, plugin, status, "initialize");
    }
    context.manager = managers.self(loader::Slot::memalloc);
    context.memalloc = plugin.table.memalloc;
    context.memfree = plugin.table.memfree;
    const bool pins = !plugin.defaults(loader::Slot::memhostalloc);
    context.host_manager = managers.self(loader::Slot::memhostalloc);
    context.memhostalloc = pins ? plugin.table.memhostalloc : nullptr;
    context.memhostfree = pins ? plugin.table.memhostfree : nullptr;
    return EMM_OK;
}

// Pending frees run first. The program's live memory ends with the manager (emm_context_retire).
void destroy_manager(emm_context &context) noexcept {
    const driver::EndedContext ended(is_alive(context) ? nullptr : context.cuda_context);
    sharing->end(context);
    flush(context);
    if (!context.managers.made.empty()) {
        const Managing managing(context);
        destroy_members(context);
    }
    flush(context); // destroy may have queued frees
    release_defaults(context);
    context.epoch.note_dropped();
    const bool is_retired = (context.state.load(std::memory_order_relaxed) & state_retired) != 0;
    drop_tracked(context, !is_retired);
}

bool is_recreated_by_reset(const emm_context &context) noexcept {
    return context.selection->plugin->defaults(loader::Slot::reset);
}

emm_status reset_manager(emm_context &context) {
    const loader::Selection &selection = *context.selection;
    if (is_recreated_by_reset(context)) {
        // If the plugin cannot make a new manager, the next reset or the next request for the
        // context tries again.
        context.state.fetch_or(state_unserved, std::memory_order_acq_rel);
        destroy_manager(context);
        const OwnerGuard announcing(context.group.announcing); // until it is told with the others
        const emm_status status = create_manager(context, selection);
        if (status >= EMM_OK) {
            context.state.fetch_and(~state_unserved, std::memory_order_release);
        }
        return status;
    }
    sharing->end(context);
    flush(context);
    const emm_status status = call_reset(context);
    release_defaults(context);
    if (status >= EMM_OK) {
        context.epoch.note_dropped();
        drop_tracked(context, true);
    }
    return status;
}

namespace {

// A plugin may call these from its own exit handlers, and at the end of its threads. If a plugin
// returns a service's error, the service's sentence stays.
template <class Service> emm_status serve_plugin(Service service) noexcept {
    if (observe::is_forked_child()) {
        return observe::refuse_forked_child();
    }
    const emm_status status = observe::with_memory("no host memory to serve a plugin", service);
    if (status < EMM_OK) {
        observe::make_plugin_word();
    }
    return status;
}

void host_log(int32_t level, const char *text) {
    observe::log(level, observe::bounded(text));
}

emm_status host_defer(emm_context *context, emm_deferred function, void *argument, size_t bytes) {
    return serve_plugin([&] { return defer(*context, function, argument, bytes); });
}

size_t host_pressure(emm_context *context, size_t bytes) {
    return observe::is_forked_child() ? 0 : press(*context, bytes);
}

emm_status host_serve_ipc(emm_context *context, const emm_ipc_source *source,
                          emm_ipc_handle *ret_handle) {
    return serve_plugin([&] { return sharing->serve(*context, *source, ret_handle); });
}

emm_status host_withdraw_ipc(emm_context *context, const emm_ipc_handle *handle) {
    return serve_plugin([&] { return sharing->withdraw(*context, *handle); });
}

constexpr emm_host the_host = {
    sizeof(emm_host), EMM_PLUGIN_ABI_MAJOR,     EMM_PLUGIN_ABI_MINOR,   0,           EMM_VERSION,
    &host_log,        &observe::fail_by_plugin, &driver::metered_entry, &host_defer, &host_pressure,
    &host_serve_ipc,  &host_withdraw_ipc};

} // namespace

const emm_host &host() {
    return the_host;
}

} // namespace emm::core
