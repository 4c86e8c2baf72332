#pragma once

#include "loader/plugin.h"

namespace emm::loader {

// Calls the entry function and takes what it returns into ret_plugin, slot by slot, if it keeps the
// ABI's rules. `ret_plugin.path` is set already, or empty for a linked-in plugin.
emm_status take_table(emm_plugin_entry entry, const emm_host &host, const emm_plugin &defaults,
                      Plugin &ret_plugin);

} // namespace emm::loader
