#pragma once

#include "loader/mapped.h"
#include "loader/plugin.h"
#include "loader/spec.h"

namespace emm::loader {

// Checks a plugin's own list of options, which has to lie in `memory` with its texts, and copies
// it, with the NULL name at its end, to ret_plugin.options.
emm_status check_options(const Mapped &memory, const emm_option *options, Plugin &ret_plugin);

// Checks settings against the plugin's list. *ret_texts gets each option's value, in the order of
// the list: what was set, else the default, else NULL. The texts live as long as the process.
emm_status apply_settings(const Plugin &plugin, const std::vector<Setting> &settings,
                          std::vector<const char *> &ret_texts);

// Has the plugin look at them, too: at what its own slot for that refuses.
emm_status check_values(const Plugin &plugin, const emm_host &host,
                        const std::vector<const char *> &texts);

} // namespace emm::loader
