#pragma once

#include "loader/plugin.h"

#include <emm/emm.h>
#include <emm/plugin.h>

// The functions of this folder, by file.

namespace emm::core {

// --- the plugin that serves this process (selection.cpp) ----------------------------------------

// emm_set_plugin and emm_set_plugin_entry.
emm_status choose(const char *spec);
emm_status choose_entry(emm_plugin_entry entry, const char *options);

// The plugin in force. Before the first use, loads the first of the selection that loads.
emm_status current_selection(const loader::Selection *&ret_selection);

// Loads one spec without choosing it.
emm_status probe(const char *spec, const loader::Selection *&ret_selection);

void describe_selection(const loader::Selection &selection, emm_plugin_info *ret_info);

// The plugin of `base` with other values for some of its options. The same values give the same
// Selection. `options` as in emm_context_named.
emm_status select_options(const loader::Selection &base, const char *options,
                          const loader::Selection *&ret_selection);

// Makes the context's manager. The first success fixes the choice. Until then, if a plugin's
// `create` or `initialize` fails, the next plugin of the list is tried.
emm_status make_manager(emm_context &context);

// Total bytes for the contexts of a device, as the plugin in force reports without any context.
emm_status device_total(int32_t device, size_t *ret_total);

// --- the records of all contexts (registry.cpp) -------------------------------------------------

bool is_still_current(emm_context *&ret_context) noexcept; // quick; false: call context_current
emm_status context_current(emm_context *&ret_context);
emm_status context_from(CUctx_st *cuda_context, emm_context *&ret_context);
emm_status context_for_device(int32_t device, emm_context *&ret_context);
emm_status context_named(emm_context &context, const char *name, const char *options,
                         emm_context *&ret_context);

// Both are for the thread that owns the manager_lock. is_unserved tells whether the context has no
// manager yet. begin_serving makes the manager and lets the context serve.
bool is_unserved(const emm_context &context) noexcept;
emm_status begin_serving(emm_context &context);

// Takes a pool that is given up from its group's list.
void leave_group(emm_context &pool) noexcept;

// Called when `plugin` begins to serve a context. api/context.cpp sets this to monitor::announce,
// so `emm top` can ask the process from its first context on.
using OnServing = void (*)(const loader::Plugin &plugin) noexcept;
inline constinit OnServing on_serving = nullptr;

// Refuses if the process has shut down emm, or is a forked child.
emm_status admit_process() noexcept;

// --- a manager: made for one context, reset, given up (manager.cpp) -----------------------------

// Calls create and initialize. On success the context is ready to serve; the caller sets its state
// flags.
emm_status create_manager(emm_context &context, const loader::Selection &selection);

// Runs pending frees, destroys the manager, and frees the memory of the host's default slots.
void destroy_manager(emm_context &context) noexcept;

emm_status reset_manager(emm_context &context);

// Whether a reset makes a new manager, to which announcements are then replayed.
bool is_recreated_by_reset(const emm_context &context) noexcept;

// The services that plugins get. Lives as long as the process.
const emm_host &host();

// --- announcements of the application (announce.cpp) --------------------------------------------

emm_status register_stream(emm_context &context, emm_stream stream) noexcept;
emm_status retire_stream(emm_context &context, emm_stream stream) noexcept;
emm_status begin_capture(emm_context &context, emm_stream stream) noexcept;
emm_status end_capture(emm_context &context, emm_stream stream) noexcept;
emm_status begin_section(emm_context &context, const void *caller) noexcept;
emm_status end_section(emm_context &context, const void *caller) noexcept;

// emm_set_peer_access. Requests that no plugin could meet are refused here, so that plugins need
// not check.
emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags);

// --- reset, and how a manager ends (retire.cpp) -------------------------------------------------

// emm_context_reset, for a group's own context with all its pools. If the last reset could not make
// a new manager, this one makes it. `caller` is for the event log.
emm_status reset(emm_context &context, const void *caller);

// Retires a group's own context with all its pools. `caller` is for the event log.
emm_status retire(emm_context &context, const void *caller);
emm_status shut_down(const void *caller);

// --- pause and resume (pause.cpp) ---------------------------------------------------------------

// emm_context_pause and emm_context_resume. Only the plugin knows what is paused.
emm_status pause(emm_context &context, uint32_t flags, size_t *ret_released);
emm_status resume(emm_context &context, uint32_t flags, const void *caller);
// emm_context_read_paused, for one pool. The manager's lock is held, so that no resume drops the
// copy.
emm_status read_paused(emm_context &pool, emm_deviceptr ptr, size_t size, void *host);

// --- options that change (set_option.cpp) -------------------------------------------------------

// emm_context_set_option. If a reset makes a new manager, that manager gets the same value.
emm_status set_option(emm_context &context, const char *key, const char *text);

// --- contexts that have died, and calls from within (retire.cpp) --------------------------------

// Retires contexts that have died without being retired. The driver may give a dead context's
// addresses to other contexts. So all dead contexts first stop handing out memory; then their
// managers are given up. A context with a call inside keeps its manager until the next call of this
// function.
void retire_dead_contexts();

// Refuses if this thread is inside a plugin's call, because a reset that waited for that call would
// wait for ever. The refusal's sentence ends with `what`, "reset" or "retired".
emm_status expect_outside(const char *what);

} // namespace emm::core
