#pragma once

#include "loader/plugin.h"

#include <emm/emm.h>

// Which plugin serves this process, and how that came about.

namespace emm::core {

// emm_set_plugin and emm_set_plugin_entry.
emm_status choose(const char *spec);
emm_status choose_entry(emm_plugin_entry entry, const char *options);

// The plugin in force; loads the first of the selection that loads, if none is in force yet.
emm_status current_selection(const loader::Selection *&ret_selection);

// Loads one spec and chooses nothing.
emm_status probe(const char *spec, const loader::Selection *&ret_selection);

void describe_selection(const loader::Selection &selection, emm_plugin_info *ret_info);

// Makes the context's manager. The first success settles the choice: until then a plugin whose
// `create` or `initialize` fails gives way to the next of the list.
emm_status make_manager(emm_context &context);

// Bytes in all for the contexts of a device, as the plugin in force tells without any of them.
emm_status device_total(int32_t device, size_t *ret_total);

} // namespace emm::core
