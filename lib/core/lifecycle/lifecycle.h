#pragma once

#include "loader/plugin.h"

#include <emm/emm.h>
#include <emm/plugin.h>

// The functions of this folder, by file.

namespace emm::core {

// --- which plugin serves this process (selection.cpp) -------------------------------------------

// emm_set_plugin and emm_set_plugin_entry.
emm_status choose(const char *spec);
emm_status choose_entry(emm_plugin_entry entry, const char *options);

// The plugin in force; loads the first of the selection that loads, if none is in force yet.
emm_status current_selection(const loader::Selection *&ret_selection);

// Loads one spec and chooses nothing.
emm_status probe(const char *spec, const loader::Selection *&ret_selection);

void describe_selection(const loader::Selection &selection, emm_plugin_info *ret_info);

// The plugin of `base` with other values for some of its options: the same Selection for the same
// values. `options` as in emm_context_named.
emm_status select_options(const loader::Selection &base, const char *options,
                          const loader::Selection *&ret_selection);

// Makes the context's manager. The first success settles the choice: until then a plugin whose
// `create` or `initialize` fails gives way to the next of the list.
emm_status make_manager(emm_context &context);

// Bytes in all for the contexts of a device, as the plugin in force tells without any of them.
emm_status device_total(int32_t device, size_t *ret_total);

// --- the records of all contexts (registry.cpp) -------------------------------------------------

bool is_still_current(emm_context *&ret_context) noexcept; // quick; false: ask the next
emm_status context_current(emm_context *&ret_context);
emm_status context_from(CUctx_st *cuda_context, emm_context *&ret_context);
emm_status context_for_device(int32_t device, emm_context *&ret_context);
emm_status context_named(emm_context &context, const char *name, const char *options,
                         emm_context *&ret_context);

// Both by the one thread that owns the manager_lock: whether the context has no manager yet, and
// makes it and lets the context serve.
bool is_unserved(const emm_context &context) noexcept;
emm_status begin_serving(emm_context &context);

// Set by lib/monitor, which tells `emm top` what the process holds: a context is now served by
// `plugin`. From the first one on, the process can be asked.
using OnServing = void (*)(const loader::Plugin &plugin) noexcept;
inline constinit OnServing on_serving = nullptr;

// Shut down, or forked: nothing can be asked of this process any more.
emm_status admit_process() noexcept;

// --- a manager: made for one context, reset, given up (manager.cpp) -----------------------------

// create and initialize. On success the context is ready to serve; its state flags are the
// caller's.
emm_status create_manager(emm_context &context, const loader::Selection &selection);

// Runs pending frees, destroys the manager and what the host's defaults hold.
void destroy_manager(emm_context &context) noexcept;

emm_status reset_manager(emm_context &context);

// Whether a reset makes a new manager, which is then told what the one before was.
bool begins_anew(const emm_context &context) noexcept;

// The services that plugins get. Lives as long as the process.
const emm_host &host();

// --- what an application announces (announce.cpp) -----------------------------------------------

emm_status register_stream(emm_context &context, emm_stream stream) noexcept;
emm_status retire_stream(emm_context &context, emm_stream stream) noexcept;
emm_status begin_capture(emm_context &context, emm_stream stream) noexcept;
emm_status end_capture(emm_context &context, emm_stream stream) noexcept;
emm_status begin_section(emm_context &context, const void *caller) noexcept;
emm_status end_section(emm_context &context, const void *caller) noexcept;

// emm_set_peer_access. What no plugin could do is refused here, so that each need not say it.
emm_status set_peer_access(emm_context &context, int32_t peer_device, uint32_t flags);

// --- reset, and how a manager ends (retire.cpp) -------------------------------------------------

// emm_context_reset: of a group's own context, with all its pools. A context whose last reset could
// not make a new manager gets one. `caller` is for the event log.
emm_status reset(emm_context &context, const void *caller);

// Of a group's own context, with all its pools. `caller` is for the event log.
emm_status retire(emm_context &context, const void *caller);
emm_status shut_down(const void *caller);

// --- pause and resume (pause.cpp) ---------------------------------------------------------------

// emm_context_pause and emm_context_resume. The plugin knows what is paused, and nothing here does.
emm_status pause(emm_context &context, uint32_t flags, size_t *ret_released);
emm_status resume(emm_context &context, uint32_t flags, const void *caller);
// emm_context_read_paused: of one pool, with its manager's lock, so that no resume drops the copy.
emm_status read_paused(emm_context &pool, emm_deviceptr ptr, size_t size, void *host);

// --- options that change (set_option.cpp) -------------------------------------------------------

// emm_context_set_option. A manager that a reset makes anew is told the same.
emm_status set_option(emm_context &context, const char *key, const char *text);

// --- contexts that have died, and calls from within (retire.cpp) --------------------------------

// Contexts that have died without being retired. The driver gives their addresses to others, so
// first of all none of them may hand out memory any more; then their managers are given up, except
// those that a call is inside of as far as can be known: the next look finds them again.
void retire_the_dead();

// Refuses if this thread is inside a plugin's call: a reset that waited for that call would wait
// for ever. The refusal's sentence ends with `what`, "reset" or "retired".
emm_status expect_outside(const char *what);

} // namespace emm::core
